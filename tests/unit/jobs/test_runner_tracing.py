import json
from datetime import UTC, datetime

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from utterd.config import BrokerSettings
from utterd.jobs.announce import Announcer
from utterd.ops.opentelemetry import OpenTelemetryTracing
from utterd.testing.broker import InMemoryBroker

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans():
    return InMemorySpanExporter()


@pytest.fixture
def traced(spans):
    """Parts of a line that trace."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracing, broker = OpenTelemetryTracing(provider, BrokerSettings()), InMemoryBroker()
    announcer = Announcer(
        sink=broker, source="/test", now=lambda: datetime(2030, 1, 31, tzinfo=UTC), tracing=tracing
    )
    return {"tracing": tracing, "broker": broker, "announcer": announcer}


def by_name(spans):
    return {span.name: span for span in spans.get_finished_spans()}


async def test_a_job_is_one_trace_from_its_publisher_to_its_events(open_line, traced, spans):
    """Each step is a span of it, and the completed event carries it on."""
    body = json.dumps({"job_id": "mine", "text": "Hello there."}).encode()
    async with open_line(**traced) as line:
        await line.run(body, headers={"traceparent": TRACEPARENT})
    seen = by_name(spans)
    assert {"plan", "lookup", "speak", "encode", "store", "send tts.events"} < set(seen)
    trace_id = TRACEPARENT.split("-")[1]
    assert {f"{span.context.trace_id:032x}" for span in seen.values()} == {trace_id}
    sent = line.broker.events[-1].trace["traceparent"]
    assert sent.split("-")[1] == trace_id
    assert sent.split("-")[2] == f"{seen['send tts.events'].context.span_id:016x}"


async def test_a_failed_job_is_an_error_of_its_code(open_line, traced, spans):
    """Whoever looks for failures finds them without reading logs."""
    body = json.dumps({"job_id": "mine", "text": "Hello.", "voice": "nobody/none"}).encode()
    async with open_line(**traced) as line:
        await line.run(body)
    (job,) = (span for span in spans.get_finished_spans() if span.name.startswith("process"))
    assert job.attributes["error.type"] == "unknown_voice"


async def test_no_span_holds_a_word_of_the_job(open_line, traced, spans):
    """Traces go to other machines."""
    body = json.dumps({"job_id": "mine", "text": "Hello zebra-quartz."}).encode()
    async with open_line(**traced) as line:
        await line.run(body)
    assert "zebra" not in "".join(span.to_json() for span in spans.get_finished_spans())
