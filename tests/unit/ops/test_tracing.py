import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from utterd.config import BrokerSettings, Lane
from utterd.ops.opentelemetry import OpenTelemetryTracing
from utterd.ops.tracing import NoTracing, TracedDelivery

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
PARENT_ID = 0xB7AD6B7169203331
PARENT = {"traceparent": f"00-{TRACE_ID:032x}-{PARENT_ID:016x}-01", "tracestate": "shop=7"}


def delivery(**changes):
    return TracedDelivery(
        **{
            "lane": Lane.BATCH,
            "routing_key": "synthesize.batch",
            "job_id": "j-1",
            "correlation_id": "c-1",
            "body_bytes": 42,
            "parent": PARENT,
        }
        | changes
    )


@pytest.fixture
def spans():
    return InMemorySpanExporter()


@pytest.fixture
def tracing(spans):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return OpenTelemetryTracing(provider, BrokerSettings())


def test_a_job_carries_its_publishers_trace_on(tracing, spans):
    """Its span is a child of the publisher's, and so are its steps of it."""
    with tracing.job(delivery()), tracing.step("speak"):
        pass
    step, job = spans.get_finished_spans()
    assert job.context.trace_id == step.context.trace_id == TRACE_ID
    assert job.parent.span_id == PARENT_ID
    assert step.parent.span_id == job.context.span_id
    assert (step.name, job.name) == ("speak", "process tts.jobs.batch")


def test_a_job_is_told_by_the_conventions_for_messaging(tracing, spans):
    """Any tracing backend shows it as a consumer of a queue."""
    with tracing.job(delivery()):
        pass
    (job,) = spans.get_finished_spans()
    assert job.kind is SpanKind.CONSUMER
    assert dict(job.attributes) == {
        "messaging.system": "rabbitmq",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": "tts.jobs.batch",
        "messaging.rabbitmq.destination.routing_key": "synthesize.batch",
        "messaging.message.id": "j-1",
        "messaging.message.conversation_id": "c-1",
        "messaging.message.body.size": 42,
    }


def test_an_event_carries_the_span_of_its_sending_on(tracing, spans):
    """A subscriber's span becomes a child of it."""
    with tracing.job(delivery()), tracing.send("done"):
        headers = tracing.headers()
    sending, _ = spans.get_finished_spans()
    assert sending.kind is SpanKind.PRODUCER
    assert headers["traceparent"] == f"00-{TRACE_ID:032x}-{sending.context.span_id:016x}-01"
    assert headers["tracestate"] == "shop=7"


def test_a_failure_is_told_by_its_code(tracing, spans):
    """And marks the span as an error."""
    with tracing.job(delivery()):
        tracing.failed("unknown_voice")
    (job,) = spans.get_finished_spans()
    assert job.attributes["error.type"] == "unknown_voice"
    assert job.status.status_code is StatusCode.ERROR


def test_an_exception_leaves_none_of_its_words(tracing, spans):
    """It may quote the job."""
    with pytest.raises(ValueError, match="zebra"), tracing.job(delivery()), tracing.step("speak"):
        raise ValueError("zebra")
    assert "zebra" not in "".join(span.to_json() for span in spans.get_finished_spans())


def test_a_job_without_a_trace_begins_one(tracing, spans):
    """Nobody before it traced."""
    with tracing.job(delivery(parent={})):
        pass
    (job,) = spans.get_finished_spans()
    assert job.parent is None


def test_without_tracing_there_is_no_context_to_pass_on():
    """The job's own goes to its events then."""
    tracing = NoTracing()
    with tracing.job(delivery()), tracing.step("speak"), tracing.send("done"):
        tracing.failed("unknown_voice")
        assert tracing.headers() == {}
