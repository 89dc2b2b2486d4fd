"""OpenTelemetry spans of producers and consumers, by the semantic conventions of messaging. Extra `otel`.

    from barnabas.client.opentelemetry import ConsumerTracing, ProducerTracing, traced

    Producer(address, interceptors=[ProducerTracing()])      # "send orders", until the acknowledgement
    Consumer(address, interceptors=[ConsumerTracing()])      # "poll orders", linked to the records' spans
    await consumer.process(traced(handle, group="billing"))  # "process orders", around the handler

The context travels in the headers of the record, as the configured propagators write it (`traceparent`). A
"process" span is a child of the span that sent its record.
"""

from __future__ import annotations

import inspect
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from barnabas.client.extensions.interceptors import ConsumerInterceptor, ProducerInterceptor
from barnabas.client.extensions.records import (
    Header,
    Headers,
    ProducerRecord,
    Record,
    RecordMetadata,
    header_pairs,
)
from barnabas.core.optional_dependencies import MissingExtra, install_command

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
except ImportError as error:
    raise MissingExtra(f"opentelemetry is not installed: {install_command('otel')}") from error

SCOPE: Final = "barnabas.client"
KEY_BYTES_MAX: Final = 256
LINKS_MAX: Final = 128
"""The default limit of OpenTelemetry's SDK."""
OPEN_SPANS_MAX: Final = 100_000
"""Spans that wait for an acknowledgement. Beyond it the oldest ends early: an interceptor took its header."""


class ProducerTracing(ProducerInterceptor):
    """A span for each record, from `send` to its acknowledgement, whose context goes into the headers."""

    def __init__(self, *, client_id: str | None = None, provider: TracerProvider | None = None) -> None:
        self._tracer = _tracer(provider)
        self._client_id = client_id
        self._open: OrderedDict[tuple[Header, ...], Span] = OrderedDict()

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        attributes = _attributes("send", "send", record.topic, self._client_id)
        span = self._tracer.start_span(f"send {record.topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        if span.is_recording():
            span.set_attributes(_key_and_size(record.key, record.value))
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        # The state of a trace belongs to its parent: that of a record which is passed on is of another trace.
        replaced = carrier.keys() | ({"tracestate"} if "traceparent" in carrier else set())
        kept = [pair for pair in header_pairs(record.headers) if pair[0] not in replaced]
        headers = [*kept, *((name, text.encode()) for name, text in carrier.items())]
        if not span.is_recording() or not carrier:
            span.end()
        else:
            self._open[_context_headers(headers)] = span
            if len(self._open) > OPEN_SPANS_MAX:
                self._open.popitem(last=False)[1].end()
        return record._replace(headers=headers)

    def on_outcome(
        self, record: ProducerRecord, metadata: RecordMetadata | None, error: Exception | None
    ) -> None:
        span = self._open.pop(_context_headers(record.headers), None)
        if span is None:
            return
        if metadata is not None:
            span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
            if metadata.offset >= 0:
                span.set_attribute("messaging.kafka.offset", metadata.offset)
        if error is not None:
            _fail(span, error)
        span.end()


class ConsumerTracing(ConsumerInterceptor):
    """A span for each batch of records that is handed out, linked to the spans that sent them."""

    def __init__(
        self,
        group: str | None = None,
        *,
        client_id: str | None = None,
        provider: TracerProvider | None = None,
    ) -> None:
        self._tracer = _tracer(provider)
        self._group = group
        self._client_id = client_id

    def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        for topic, count in Counter(record.topic for record in records).items():
            contexts = (_context_of(record) for record in records if record.topic == topic)
            spans = (trace.get_current_span(context).get_span_context() for context in contexts)
            links = [Link(each) for each in spans if each.is_valid][:LINKS_MAX]
            attributes = _attributes("poll", "receive", topic, self._client_id, self._group)
            attributes["messaging.batch.message_count"] = count
            self._tracer.start_span(
                f"poll {topic}", kind=SpanKind.CLIENT, attributes=attributes, links=links
            ).end()
        return records


@contextmanager
def processing(
    record: Record[Any, Any], *, group: str | None = None, provider: TracerProvider | None = None
) -> Iterator[Span]:
    """Span around the work on one record, for loops: `with processing(record): ...`. An error ends it too."""
    attributes = _attributes("process", "process", record.topic, None, group)
    attributes["messaging.destination.partition.id"] = str(record.partition)
    attributes["messaging.kafka.offset"] = record.offset
    span = _tracer(provider).start_span(
        f"process {record.topic}",
        context=_context_of(record),
        kind=SpanKind.CONSUMER,
        attributes={**attributes, **_key_and_size(record.key, record.value)},
    )
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except Exception as error:
            _fail(span, error)
            raise


def traced(
    handler: Callable[[Record[Any, Any]], object],
    *,
    group: str | None = None,
    provider: TracerProvider | None = None,
) -> Callable[[Record[Any, Any]], Awaitable[None]]:
    """Handler for `consumer.process` with a span around each call. Spans within it are its children."""

    async def handle(record: Record[Any, Any]) -> None:
        with processing(record, group=group, provider=provider):
            outcome = handler(record)
            if inspect.isawaitable(outcome):
                await outcome

    return handle


def _tracer(provider: TracerProvider | None) -> Tracer:
    from barnabas import __version__  # noqa: PLC0415 - the package imports this module's neighbours

    return trace.get_tracer(SCOPE, __version__, provider)


def _attributes(
    name: str, kind: str, topic: str, client_id: str | None = None, group: str | None = None
) -> dict[str, str | int | bool]:
    found: dict[str, str | int | bool] = {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }
    if client_id is not None:
        found["messaging.client.id"] = client_id
    if group is not None:
        found["messaging.consumer.group.name"] = group
    return found


def _context_headers(headers: Headers | None) -> tuple[Header, ...]:
    """Headers that propagators write, by which the span of a record is found again."""
    fields = propagate.get_global_textmap().fields
    return tuple(pair for pair in header_pairs(headers) if pair[0] in fields)


def _key_and_size(key: Any, value: Any) -> dict[str, str | int | bool]:
    found: dict[str, str | int | bool] = {}
    if isinstance(key, bytes | str) and len(key) <= KEY_BYTES_MAX:
        found["messaging.kafka.message.key"] = key if isinstance(key, str) else key.decode(errors="replace")
    if value is None:
        found["messaging.kafka.message.tombstone"] = True
    elif isinstance(value, bytes):
        found["messaging.message.body.size"] = len(value)
    return found


def _context_of(record: Record[Any, Any]) -> Context:
    """Context in the headers of a record. Headers that are not text hold no context."""
    carrier: dict[str, str] = {}
    for name, value in record.headers:
        if value is not None:
            carrier[name] = value.decode(errors="replace")
    return propagate.extract(carrier, Context())


def _fail(span: Span, error: Exception) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
