"""Messages of a topic: a page of them by offset, time and partition; filters; live; downloads."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode

from starlette.responses import Response, StreamingResponse

from barnabas.client.extensions.records import Record as ConsumedRecord
from barnabas.console.html.components import (
    Column,
    card,
    check,
    choice,
    data_table,
    empty,
    field,
    folded,
    note,
    table_row,
)
from barnabas.console.html.elements import (
    Content,
    Element,
    a,
    button,
    code,
    div,
    element,
    form,
    input_,
    label,
    p,
    span,
)
from barnabas.console.html.figures import moment, number, size
from barnabas.console.pages.topic import topic_frame
from barnabas.console.records.browsing import (
    UNBROKEN_MS,
    Bounds,
    Browser,
    Found,
    RecordPage,
    candidate,
)
from barnabas.console.records.decoding import FORMATS, ShownBytes, show, visible_name
from barnabas.console.records.expression import Predicate, holds
from barnabas.console.records.previews import preview
from barnabas.console.records.query import LIMIT, LIMIT_MAX, InvalidQuery, MessageQuery
from barnabas.console.records.tails import PERIOD_MS, Arrived, News, TooMany
from barnabas.console.schemas.decoders import PartDecoder
from barnabas.console.web.context import Context, Refused
from barnabas.console.web.section import Parameter, Question, Section, get
from barnabas.console.web.streams import event, stream
from barnabas.core.clock import Clock
from barnabas.core.ids import NO_OFFSET, TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from barnabas.records.record import Record

F = TypeVar("F")
R = TypeVar("R")

LIMITS = (LIMIT, 100, 200, LIMIT_MAX)
"""Records of a page."""
DOWNLOAD_RECORDS_MAX = 10_000
DOWNLOAD_PAGE = 500
DOWNLOAD_CHUNK_BYTES = 64 * 1024
DOWNLOADS_MAX = 8
"""At the same time. A client that reads slowly keeps the records that wait for it."""


class PartDecoders(NamedTuple):
    key: PartDecoder
    value: PartDecoder

    @classmethod
    def of(cls, ctx: Context, topic: str) -> PartDecoders:
        return cls(ctx.decoder(topic, "key"), ctx.decoder(topic, "value"))


def query_of(ctx: Context) -> MessageQuery:
    try:
        return MessageQuery.parse(ctx.query)
    except InvalidQuery as error:
        raise Refused(str(error)) from None


def predicate_of(query: MessageQuery) -> Predicate | None:
    try:
        return query.predicate()
    except InvalidQuery as error:
        raise Refused(str(error)) from None


async def show_page(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    partitions = await partitions_of(ctx, name)
    if ctx.query.get("live") == "true":
        return await _show_live(ctx, name, partitions)
    problem: Content = None
    try:
        query = MessageQuery.parse(ctx.query)
        page: RecordPage | None = await read(ctx, name, query, partitions)
    except InvalidQuery as error:
        query, page, problem = MessageQuery(), None, note(str(error), tone="bad")
    shown = _search(name, query, partitions, ctx.query if problem is not None else query.parameters())
    found: Content = problem if page is None else await _page(ctx, name, query, page)
    produce = a("Produce", href=f"/topics/{name}/produce", class_="button") if ctx.may_change else None
    actions = (
        a("Live", href=f"/topics/{name}/messages?{_live(query)}", class_="button"),
        a(
            "Download",
            href=f"/topics/{name}/messages/download?{urlencode(query.parameters())}",
            class_="button",
        ),
        a("Protobuf", href=f"/topics/{name}/protobuf", class_="button ghost"),
        produce,
    )
    masked = None
    if ctx.mask(name) is not None:
        masked = p("Fields of these records are masked by the settings of this console.", class_="soft")
    return topic_frame(ctx, name, "Messages", card(None, shown, masked, found), actions=actions)


async def partitions_of(ctx: Context, name: str) -> list[int]:
    topic = (await ctx.admin.describe_topics([name]))[name]
    return [each.index for each in topic.partitions]


async def read(ctx: Context, name: str, query: MessageQuery, partitions: list[int]) -> RecordPage:
    """The records that the query asks for."""
    wanted = partitions if query.partition is None else [query.partition]
    if not set(wanted) <= set(partitions):
        raise InvalidQuery(f"{name} has the partitions 0 to {len(partitions) - 1}")
    places = [TopicPartition(name, each) for each in wanted]
    bounds = await bounds_of(ctx, name, wanted, committed_only=query.committed_only)
    predicate = query.predicate()
    browser = Browser(
        ctx.cluster,
        ctx.console.clock,
        name,
        bounds,
        predicate,
        ctx.decoder(name, "value"),
        mask=ctx.mask(name),
        committed_only=query.committed_only,
    )
    cursors = {each: at for each, at in (query.cursors or {}).items() if each in bounds}
    if not cursors:
        cursors = await _first_cursors(ctx, query, places, bounds)
    async with ctx.console.reading:
        if query.direction == "older":
            return await browser.older(cursors, query.limit)
        return await browser.newer(cursors, query.limit)


async def bounds_of(
    ctx: Context, name: str, partitions: list[int], *, committed_only: bool = False
) -> dict[int, Bounds]:
    places = [TopicPartition(name, each) for each in partitions]
    firsts = await ctx.admin.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = await ctx.admin.list_offsets(dict.fromkeys(places, LATEST), read_committed=committed_only)
    return {at.partition: Bounds(firsts[at], ends[at]) for at in places}


async def _first_cursors(
    ctx: Context, query: MessageQuery, places: list[TopicPartition], bounds: Mapping[int, Bounds]
) -> dict[int, int]:
    match query.start:
        case "newest":
            return {each: at.end for each, at in bounds.items()}
        case "oldest":
            return {each: at.first for each, at in bounds.items()}
        case "offset":
            return dict.fromkeys(bounds, query.offset)
        case "time":
            found = await ctx.admin.list_offsets(dict.fromkeys(places, query.time_ms or 0))
            return {
                at.partition: bounds[at.partition].end if offset == NO_OFFSET else offset
                for at, offset in found.items()
            }


# --- the page ---


def _search(name: str, query: MessageQuery, partitions: list[int], given: Mapping[str, str]) -> Element:
    starts = [("newest", "the newest"), ("oldest", "the oldest"), ("offset", "an offset"), ("time", "a time")]
    numbers = [("", "all"), *((str(each), str(each)) for each in partitions[:1_000])]
    formats = [(each, each) for each in FORMATS]
    limits = [(str(each), str(each)) for each in sorted({*LIMITS, query.limit})]
    return form(
        div(
            choice("start", "Start at", starts, value=given.get("start", "newest")),
            choice("partition", "Partition", numbers, value=given.get("partition", "")),
            field("offset", "Offset", kind="number", min=0, value=given.get("offset", ""), placeholder="0"),
            field("time", "Time, in UTC", kind="datetime-local", step=1, value=given.get("time", "")),
            class_="row",
        ),
        div(
            field("contains", "Contains", value=given.get("contains", ""), placeholder="text, in any case"),
            div(
                label("Filter", for_="field-filter"),
                input_(
                    type="text",
                    name="filter",
                    id="field-filter",
                    value=given.get("filter", ""),
                    placeholder='value.amount > 100 and key startswith "c-"',
                    autocomplete="off",
                    spellcheck="false",
                    class_="mono",
                ),
                class_="field filter",
            ),
            class_="row",
        ),
        div(
            choice("key", "Keys as", formats, value=query.key_format),
            choice("value", "Values as", formats, value=query.value_format),
            choice("limit", "Records", limits, value=str(query.limit)),
            check("committed", "committed only", checked=query.committed_only),
            button("Show", class_="primary"),
            class_="row",
        ),
        _filter_help(),
        method="get",
        action=f"/topics/{name}/messages",
        id="message-search",
    )


def _filter_help() -> Element:
    examples = (
        ("value.amount > 100", "a number in a value in JSON, Avro or Protobuf"),
        ('value.items[0].sku == "A-1"', "inside lists and objects"),
        ('key startswith "c-" and not header.source == "web"', "keys and headers"),
        ('value matches "(?i)time.?out" or value contains "lost"', "patterns (RE2) and texts"),
        ('timestamp >= "2026-11-18T09:00" and partition in [0, 3]', "time and place"),
        ("exists(value.error) or size > 10000", "whether there is one; bytes of the value"),
    )
    columns = (Column("Filter"), Column("Finds"))
    return folded(
        "What a filter can say",
        data_table("Examples of filters", columns, [(code(one), two) for one, two in examples]),
    )


async def _page(ctx: Context, name: str, query: MessageQuery, page: RecordPage) -> Content:
    decoders = PartDecoders.of(ctx, name)
    rows = await in_turns(ctx.console.clock, page.records, lambda each: _row(decoders, name, query, each))
    said = f"{number(page.scanned)} records read, {size(page.scanned_bytes)}"
    if not page.is_complete and len(page.records) < query.limit:
        said += "; the search stopped at its limit and can go on"
    following = None
    if not page.is_complete:
        link = urlencode(query.going_on(page.cursors).parameters())
        shown = "Older" if query.direction == "older" else "Newer"
        following = a(shown, href=f"/topics/{name}/messages?{link}", class_="button", id="further")
    problems = [note(each, tone="warn") for each in page.unreadable]
    if not rows:
        nothing = "No record matches." if query.contains or query.filter else "There are no records here."
        return (problems, empty(p(nothing), p(said, class_="soft"), following))
    return (
        problems,
        data_table("Messages", COLUMNS, rows, id_="messages"),
        div(span(said), following, class_="pager"),
    )


async def in_turns(clock: Clock, found: Iterable[F], row: Callable[[F], Awaitable[R]]) -> list[R]:
    """A row of each. Other pages get turns."""
    rows = []
    unbroken_ms = clock.monotonic_ms()
    for each in found:
        rows.append(await row(each))
        if clock.monotonic_ms() - unbroken_ms > UNBROKEN_MS:
            await asyncio.sleep(0)
            unbroken_ms = clock.monotonic_ms()
    return rows


async def _row(decoders: PartDecoders, name: str, query: MessageQuery, found: Found) -> tuple[Content, ...]:
    record = found.record
    key = await show(record.key, query.key_format, decoders.key, is_preview=True)
    value = await show(record.value, query.value_format, decoders.value, is_preview=True)
    return cells(name, found.partition, record.offset, record.timestamp, key, value, len(record.headers))


def cells(
    name: str, partition: int, offset: int, timestamp: int, key: ShownBytes, value: ShownBytes, headers: int
) -> tuple[Content, ...]:
    link = f"/topics/{name}/records/{partition}/{offset}"
    return (
        a(
            f"{partition} · {offset:,}",
            href=link,
            class_="mono",
            title=f"partition {partition}, offset {offset}",
        ),
        moment(timestamp),
        preview(key),
        (
            preview(value),
            " ",
            span(f"{headers} headers" if headers > 1 else "1 header", class_="soft unbroken")
            if headers
            else None,
        ),
    )


COLUMNS = (
    Column("Partition · offset"),
    Column("Time (UTC)", is_optional=True),
    Column("Key"),
    Column("Value"),
)


# --- live ---

KEPT_LIVE = ("contains", "filter", "partition", "key", "value")
LIVE_DECODES_MS = 100.0
"""For the filter of a viewer, in each period of a tail."""


def _live(query: MessageQuery) -> str:
    kept = {name: text for name, text in query.parameters().items() if name in KEPT_LIVE}
    return urlencode({**kept, "live": "true"})


async def _show_live(ctx: Context, name: str, partitions: list[int]) -> Response:
    query = query_of(ctx)
    predicate_of(query)
    numbers = [("", "all"), *((str(each), str(each)) for each in partitions[:1_000])]
    search = form(
        choice(
            "partition", "Partition", numbers, value="" if query.partition is None else str(query.partition)
        ),
        field("contains", "Contains", value=query.contains),
        field("filter", "Filter", value=query.filter, spellcheck="false"),
        input_(type="hidden", name="live", value="true"),
        [input_(type="hidden", name=each, value=query.parameters().get(each)) for each in ("key", "value")],
        button("Apply", class_="primary"),
        method="get",
        action=f"/topics/{name}/messages",
        class_="row",
    )
    tail = div(
        div(
            span("connecting", class_="live off", id="tail-state"),
            button("Pause", type="button", id="tail-pause", aria_pressed="false"),
            class_="actions",
        ),
        div(
            hx_target="#tail-rows",
            hx_swap="afterbegin",
            id="tail",
            attributes={"hx-sse:connect": f"/topics/{name}/messages/live?{_live(query)}"},
        ),
        data_table("Messages as they arrive", COLUMNS, (), body_id="tail-rows"),
    )
    back = a("Stop", href=f"/topics/{name}/messages", class_="button")
    return topic_frame(ctx, name, "Messages", card(None, search, tail), actions=back)


async def show_live(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    query = query_of(ctx)
    predicate = predicate_of(query)
    await partitions_of(ctx, name)  # an unknown topic is refused here

    now_ms = ctx.console.clock.monotonic_ms
    decoder, until_ms = ctx.decoder(name, "value", LIVE_DECODES_MS), now_ms() + PERIOD_MS

    async def keeps(record: ConsumedRecord[bytes | None, bytes | None]) -> bool:
        nonlocal decoder, until_ms
        if query.partition is not None and record.partition != query.partition:
            return False
        if predicate is None:
            return True
        if now_ms() >= until_ms:
            decoder, until_ms = ctx.decoder(name, "value", LIVE_DECODES_MS), now_ms() + PERIOD_MS
        stored = Record(record.offset, record.timestamp_ms, record.key, record.value, record.headers)
        return await holds(predicate, await candidate(record.partition, stored, decoder))

    async def events() -> AsyncIterator[bytes]:
        connection = ctx.connection
        total = 0
        try:
            async for news in ctx.console.tails.follow(connection, connection.properties, name, keeps):
                if not ctx.is_signed_in_as(connection):
                    return
                total += news.skipped
                yield event(await _news(ctx, name, query, news, total), ctx.base)
        except TooMany as error:
            yield event(_state(str(error), is_on=False), ctx.base)

    return stream(events())


async def _news(ctx: Context, name: str, query: MessageQuery, news: News, skipped: int) -> Content:
    if news.failure is not None:
        return _state(f"stopped: {news.failure}", is_on=False)
    said = "live" if not skipped else f"live, {number(skipped)} skipped"
    decoders = PartDecoders.of(ctx, name)
    rows = await in_turns(
        ctx.console.clock, news.records, lambda each: _live_row(decoders, name, query, each)
    )
    return (rows, _state(said, is_on=True))


def _state(said: str, *, is_on: bool) -> Element:
    """State of the tail, swapped into its own place."""
    shown = span(
        said, class_="live" if is_on else "live off", id="tail-state", attributes={"data-said": said}
    )
    return element("hx-partial", shown, attributes={"hx-target": "#tail-state", "hx-swap": "outerHTML"})


async def _live_row(decoders: PartDecoders, name: str, query: MessageQuery, arrived: Arrived) -> Element:
    record = arrived.record
    key = await show(record.key, query.key_format, decoders.key, is_preview=True)
    value = await show(record.value, query.value_format, decoders.value, is_preview=True)
    found = cells(name, record.partition, record.offset, record.timestamp_ms, key, value, len(record.headers))
    return table_row(COLUMNS, found, class_="new")


# --- downloads and JSON ---


@dataclass(frozen=True, slots=True)
class MessageRow:
    partition: int
    offset: int
    timestamp_ms: int
    key: ShownBytes
    value: ShownBytes
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MessageRows:
    rows: tuple[MessageRow, ...]
    scanned: int
    is_complete: bool
    at: str
    """Parameter `at` of the next page."""


async def answer(ctx: Context) -> MessageRows:
    name = ctx.path_text("topic")
    query = query_of(ctx)
    try:
        page = await read(ctx, name, query, await partitions_of(ctx, name))
    except InvalidQuery as error:
        raise Refused(str(error)) from None
    decoders = PartDecoders.of(ctx, name)
    rows = await in_turns(ctx.console.clock, page.records, lambda each: _message_row(decoders, query, each))
    at = query.going_on(page.cursors).parameters().get("at", "")
    return MessageRows(tuple(rows), page.scanned, page.is_complete, at)


async def _message_row(decoders: PartDecoders, query: MessageQuery, found: Found) -> MessageRow:
    record = found.record
    return MessageRow(
        found.partition,
        record.offset,
        record.timestamp,
        await show(record.key, query.key_format, decoders.key, is_preview=False),
        await show(record.value, query.value_format, decoders.value, is_preview=False),
        tuple([(visible_name(each), shown_header(value)) for each, value in record.headers]),
    )


def shown_header(value: bytes | None) -> str:
    if value is None:
        return "null"
    try:
        return visible_name(value[:2_000].decode())
    except UnicodeDecodeError:
        return value[:1_000].hex(" ")


async def download(ctx: Context) -> Response:
    """The records of the query as lines of JSON, up to a number, with bytes as they are."""
    name = ctx.path_text("topic")
    query = query_of(ctx)
    partitions = await partitions_of(ctx, name)
    predicate_of(query)

    console = ctx.console
    query = replace(query, limit=DOWNLOAD_PAGE)

    async def lines() -> AsyncIterator[bytes]:
        if console.downloads >= DOWNLOADS_MAX:
            raise Refused("too many downloads run now: try again later", 503)
        console.downloads += 1
        try:
            left, at = DOWNLOAD_RECORDS_MAX, query
            page = await read(ctx, name, at, partitions)
            yield b""  # the query can be answered
            while True:
                at, is_complete = at.going_on(page.cursors), page.is_complete
                records = page.records[:left][::-1]
                del page
                left -= len(records)
                while records:  # what the client has read leaves the memory
                    chunk = bytearray()
                    while records and len(chunk) < DOWNLOAD_CHUNK_BYTES:
                        found = records.pop()
                        chunk += _line(_plain(found.partition, found.record))
                    yield bytes(chunk)
                if is_complete or left <= 0:
                    return
                page = await read(ctx, name, at, partitions)
        finally:
            console.downloads -= 1

    file = lines()
    try:
        await anext(file)  # what cannot be answered is refused in words, before the file begins
    except InvalidQuery as error:
        raise Refused(str(error)) from None
    headers = {"content-disposition": f'attachment; filename="{name}.jsonl"'}
    return StreamingResponse(file, media_type="application/x-ndjson", headers=headers)


def _line(record: dict[str, object]) -> bytes:
    """A line of JSON. Bytes of a header's name that are not text become escapes of JSON."""
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _plain(partition: int, record: Record) -> dict[str, object]:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        **_bytes("key", record.key),
        **_bytes("value", record.value),
        "headers": [
            [name, None if value is None else _bytes("value", value)] for name, value in record.headers
        ],
    }


def _bytes(name: str, data: bytes | None) -> dict[str, object]:
    """As text where it is text, else in base 64."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


_PARAMETERS = (
    Parameter("start", "string", "Where to start.", ("newest", "oldest", "offset", "time")),
    Parameter("partition", "integer", "One partition; all without it."),
    Parameter("offset", "integer", "With start=offset."),
    Parameter("time", "string", "With start=time: milliseconds since 1970, or a date and time in UTC."),
    Parameter("contains", "string", "Text that the key, the value or a header contains."),
    Parameter("filter", "string", "A filter, such as value.amount > 100."),
    Parameter("key", "string", "Format of keys.", FORMATS),
    Parameter("value", "string", "Format of values.", FORMATS),
    Parameter("limit", "integer", f"Records, at most {LIMIT_MAX}."),
    Parameter("committed", "boolean", "Committed records only."),
    Parameter("at", "string", "Where the page begins, from the page before."),
)

_BASE = "/topics/{topic}/messages"
SECTION = Section(
    "Messages",
    "/topics",
    routes=(get(_BASE, show_page), get(f"{_BASE}/live", show_live), get(f"{_BASE}/download", download)),
    questions=(
        Question("/api/topics/{topic}/messages", "Records of a topic.", answer, MessageRows, _PARAMETERS),
    ),
    is_in_navigation=False,
)
