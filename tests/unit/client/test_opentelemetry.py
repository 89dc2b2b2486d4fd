"""Spans of producers and consumers: names, attributes, parents, and the context in the headers."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from barnabas.client import Producer
from barnabas.client import opentelemetry as tracing
from barnabas.client.extensions.records import ProducerRecord, Record, RecordMetadata, header_pairs
from barnabas.client.opentelemetry import ConsumerTracing, ProducerTracing, processing, traced


class Spans:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def ended(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}


@pytest.fixture
def spans() -> Spans:
    return Spans()


def received(sent: ProducerRecord) -> Record:
    return Record(sent.topic, 1, 7, 0, sent.key, sent.value, tuple(header_pairs(sent.headers)))


@pytest.mark.parametrize("name", ["tracestate", "baggage"])
def test_the_span_of_a_record_that_is_passed_on_ends(spans: Spans, name: str) -> None:
    interceptor = ProducerTracing(provider=spans.provider)
    before = [("traceparent", b"00-1234567890abcdef1234567890abcdef-1234567890abcdef-01"), (name, b"a=1")]
    sent = interceptor.on_send(ProducerRecord("orders", b"v", None, before))
    names = [each for each, _ in header_pairs(sent.headers)]
    assert names == (["traceparent"] if name == "tracestate" else [name, "traceparent"])
    interceptor.on_outcome(sent, RecordMetadata("orders", 1, 7, 0), None)
    assert list(spans.ended) == ["send orders"]


def test_a_send_lasts_until_its_acknowledgement(spans: Spans) -> None:
    interceptor = ProducerTracing(client_id="app", provider=spans.provider)
    sent = interceptor.on_send(ProducerRecord("orders", b"v", b"k", {"h": "1"}))
    assert [name for name, _ in header_pairs(sent.headers)] == ["h", "traceparent"]
    assert not spans.ended
    interceptor.on_outcome(sent, RecordMetadata("orders", 1, 7, 0), None)
    span = spans.ended["send orders"]
    assert span.kind is SpanKind.PRODUCER
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "1",
        "messaging.client.id": "app",
        "messaging.kafka.offset": 7,
        "messaging.kafka.message.key": "k",
        "messaging.message.body.size": 1,
    }


def test_a_failed_send_is_an_error(spans: Spans) -> None:
    interceptor = ProducerTracing(provider=spans.provider)
    sent = interceptor.on_send(ProducerRecord("orders", None))
    interceptor.on_outcome(sent, None, TimeoutError("late"))
    span = spans.ended["send orders"]
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "TimeoutError"
    assert span.attributes["messaging.kafka.message.tombstone"] is True


async def test_a_cancelled_send_ends_its_span(spans: Spans) -> None:
    """The record waits for its topic: no broker answers."""

    async def connect(*_: object) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError

    interceptor = ProducerTracing(provider=spans.provider)
    async with Producer("127.0.0.1:9092", interceptors=[interceptor], connect=connect) as producer:
        sending = asyncio.create_task(producer.send("orders", b"v"))
        await asyncio.sleep(0)
        assert not spans.ended
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    span = spans.ended["send orders"]
    assert span.attributes is not None
    assert span.attributes["error.type"] == "SendCancelled"


def test_a_forwarded_context_is_replaced(spans: Spans) -> None:
    interceptor = ProducerTracing(provider=spans.provider)
    old = ("traceparent", b"00-11111111111111111111111111111111-2222222222222222-01")
    sent = interceptor.on_send(ProducerRecord("orders", b"v", headers=[old]))
    ((name, value),) = header_pairs(sent.headers)
    assert (name, value != old[1]) == ("traceparent", True)


async def test_the_work_on_a_record_is_a_child_of_its_sending(spans: Spans) -> None:
    interceptor = ProducerTracing(provider=spans.provider)
    sent = interceptor.on_send(ProducerRecord("orders", b"v"))
    interceptor.on_outcome(sent, None, None)
    inner = spans.provider.get_tracer("application")

    async def handle(record: Record) -> None:
        with inner.start_as_current_span("work"):
            assert record.value == b"v"

    await traced(handle, group="billing", provider=spans.provider)(received(sent))
    send, process, work = (spans.ended[name] for name in ("send orders", "process orders", "work"))
    assert process.kind is SpanKind.CONSUMER
    assert process.parent is not None
    assert send.context is not None
    assert (process.parent.span_id, process.parent.trace_id) == (send.context.span_id, send.context.trace_id)
    assert process.attributes is not None
    assert process.attributes["messaging.consumer.group.name"] == "billing"
    assert process.attributes["messaging.kafka.offset"] == 7
    assert work.parent == process.context


async def test_a_failing_handler_ends_its_span_with_the_error(spans: Spans) -> None:
    def handle(record: Record) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await traced(handle, provider=spans.provider)(Record("orders", 0, 0, 0, None, b"v"))
    span = spans.ended["process orders"]
    assert span.status.status_code is StatusCode.ERROR
    assert span.parent is None
    assert [event.name for event in span.events] == ["exception"]


def test_a_poll_is_linked_to_the_records(spans: Spans) -> None:
    interceptor = ProducerTracing(provider=spans.provider)
    records = [received(interceptor.on_send(ProducerRecord("orders", b"v"))) for _ in range(2)]
    plain = Record("orders", 0, 0, 0, None, b"v", (("traceparent", b"\xff"), ("x", None)))
    given = [*records, plain]
    assert ConsumerTracing("billing", provider=spans.provider).on_consume(given) is given
    span = spans.ended["poll orders"]
    assert span.kind is SpanKind.CLIENT
    assert len(span.links) == 2
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 3


def test_a_span_whose_header_was_taken_does_not_stay(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "OPEN_SPANS_MAX", 2)
    interceptor = ProducerTracing(provider=spans.provider)
    for number in range(3):
        interceptor.on_send(ProducerRecord(f"orders-{number}", b"v"))
        interceptor.on_outcome(ProducerRecord(f"orders-{number}", b"v"), None, None)
    assert list(spans.ended) == ["send orders-0"]


def test_what_is_not_sampled_still_carries_its_context() -> None:
    interceptor = ProducerTracing(provider=TracerProvider(sampler=ALWAYS_OFF))
    sent = interceptor.on_send(ProducerRecord("orders", b"v"))
    flags = int((header_pairs(sent.headers)[0][1] or b"").rpartition(b"-")[2], 16)
    assert not flags & 1
    interceptor.on_outcome(sent, None, None)
    with processing(received(sent)) as span:
        assert not span.is_recording()
