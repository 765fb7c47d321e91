"""Traces by OpenTelemetry, after its semantic conventions for messaging.

Needs the extra `tracing`. Where traces go is said by OpenTelemetry's own variables, such as
`OTEL_EXPORTER_OTLP_ENDPOINT`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from utterd import __version__
from utterd.config import BrokerSettings
from utterd.ops.tracing import TracedDelivery


def exporting_provider() -> TracerProvider:
    """A provider that sends spans by OTLP over HTTP, in batches, from a thread of its own."""
    provider = TracerProvider(resource=Resource.create({"service.name": "utterd"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class OpenTelemetryTracing:
    """A `Tracing` on a provider of spans.

    Args:
        provider: makes the spans and knows where they go.
        settings: names of the broker's queues and exchanges.
    """

    def __init__(self, provider: TracerProvider, settings: BrokerSettings) -> None:
        self._settings = settings
        self._tracer = provider.get_tracer("utterd", __version__)
        self._propagator = TraceContextTextMapPropagator()
        # The message of an exception may quote a job.
        self._span = partial(
            self._tracer.start_as_current_span,
            record_exception=False,
            set_status_on_exception=False,
        )

    @contextmanager
    def job(self, delivery: TracedDelivery) -> Iterator[None]:
        queue = self._settings.queues.of_lane(delivery.lane)
        attributes: dict[str, str | int] = {
            "messaging.system": "rabbitmq",
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": queue,
            "messaging.rabbitmq.destination.routing_key": delivery.routing_key,
            "messaging.message.id": delivery.job_id,
            "messaging.message.body.size": delivery.body_bytes,
        }
        if delivery.correlation_id is not None:
            attributes["messaging.message.conversation_id"] = delivery.correlation_id
        with self._span(
            f"process {queue}",
            context=self._propagator.extract(dict(delivery.parent)),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
        ):
            yield

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        with self._span(name):
            yield

    @contextmanager
    def send(self, event_type: str) -> Iterator[None]:
        destination = self._settings.exchanges.events
        with self._span(
            f"send {destination}",
            kind=SpanKind.PRODUCER,
            attributes={
                "messaging.system": "rabbitmq",
                "messaging.operation.type": "send",
                "messaging.operation.name": "send",
                "messaging.destination.name": destination,
                "cloudevents.event_type": event_type,
            },
        ):
            yield

    def failed(self, code: str) -> None:
        span = get_current_span()
        span.set_attribute("error.type", code)
        span.set_status(StatusCode.ERROR)

    def headers(self) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier
