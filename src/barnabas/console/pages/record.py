"""One record, whole: key, value, headers; and a form to produce one."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.responses import Response

from barnabas.client.extensions.records import Header
from barnabas.client.producer.producer import Producer
from barnabas.console.html.components import (
    Column,
    badge,
    card,
    check,
    choice,
    data_table,
    facts,
    folded,
    note,
    text_field,
)
from barnabas.console.html.elements import Content, Element, a, button, code, div, p, pre, span
from barnabas.console.html.figures import moment, number, size
from barnabas.console.pages.messages import MessageRow, shown_header
from barnabas.console.pages.topic import topic_frame
from barnabas.console.records.decoding import FORMATS, Format, ShownBytes, show, visible_name
from barnabas.console.records.fetching import fetch
from barnabas.console.records.lines import InvalidLine, read_lines
from barnabas.console.web.connections import reason_of
from barnabas.console.web.context import Context, Form, Refused
from barnabas.console.web.section import Parameter, Question, Section, get, post
from barnabas.core.errors import KafkaError, OffsetOutOfRange
from barnabas.core.ids import TopicPartition
from barnabas.records.record import Record

FETCH_BYTES = 64 * 1024
HEADERS_SHOWN = 200


async def show_record(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    partition, offset = ctx.path_number("partition"), ctx.path_number("offset")
    record = await _record(ctx, name, partition, offset)
    base = f"/topics/{name}/records/{partition}"
    key = await show(record.key, _format(ctx, "key"), ctx.decoder(name, "key"), is_preview=False)
    value = await show(record.value, _format(ctx, "value"), ctx.decoder(name, "value"), is_preview=False)
    around = urlencode({"start": "offset", "offset": max(offset - 10, 0), "partition": partition})
    copied = urlencode({"partition": partition, "offset": offset})
    about = facts(
        (
            ("Partition", a(str(partition), href=f"/topics/{name}/partitions/{partition}")),
            ("Offset", number(record.offset)),
            ("Time (UTC)", moment(record.timestamp)),
            ("Key", size(key.size_bytes)),
            ("Value", size(value.size_bytes)),
            ("Headers", number(len(record.headers))),
        )
    )
    actions = (
        a("Before", href=f"{base}/{offset - 1}", class_="button ghost") if offset else None,
        a("After", href=f"{base}/{record.offset + 1}", class_="button ghost"),
        a("Around it", href=f"/topics/{name}/messages?{around}", class_="button"),
        a("Produce a copy", href=f"/topics/{name}/produce?{copied}", class_="button")
        if ctx.may_change
        else None,
    )
    skipped = None
    if record.offset != offset:
        skipped = note(f"Offset {offset:,} holds no record (compaction, or a marker): this is the next one.")
    return topic_frame(
        ctx,
        name,
        "Messages",
        skipped,
        card(None, about),
        card("Key", _shown(key), actions=_formats(ctx, f"{base}/{offset}", "key", record.key)),
        card("Value", _shown(value), actions=_formats(ctx, f"{base}/{offset}", "value", record.value)),
        _headers(record.headers),
        actions=actions,
    )


async def _record(ctx: Context, name: str, partition: int, offset: int) -> Record:
    """The record at the offset, or the next one."""
    at = TopicPartition(name, partition)
    for _ in range(FETCHES_MAX):
        try:
            found = await fetch(ctx.cluster, at, offset, FETCH_BYTES, ctx.mask(name))
        except OffsetOutOfRange:
            raise Refused(f"partition {partition} of {name} has no offset {offset:,}", 404) from None
        first = found.records[0] if found.records else None
        unreadable = found.first_unreadable
        if unreadable is not None and (first is None or unreadable < first.offset):
            raise Refused(found.unreadable[0], 422)
        if first is not None:
            return first
        if found.next_offset <= offset:
            break
        offset = found.next_offset
    raise Refused(f"partition {partition} of {name} has no record from offset {offset:,} on", 404)


FETCHES_MAX = 20


def _format(ctx: Context, part: str) -> Format:
    wanted = ctx.query.get(part, "auto")
    if wanted not in FORMATS:
        raise Refused(f"a format is one of {', '.join(FORMATS)}")
    return wanted


def _shown(found: ShownBytes) -> Content:
    problem = note(found.problem, tone="warn") if found.problem else None
    if found.format == "null":
        return badge("null", title="no bytes at all")
    if not found.size_bytes:
        return badge("empty")
    cut = (
        note("Only the beginning is shown; the download has all of it.", tone="info")
        if found.is_cut
        else None
    )
    schema = None
    if found.schema_id is not None:
        schema = p("Decoded by ", a(found.schema, href=f"/schemas/ids/{found.schema_id}"), class_="soft")
    elif found.schema:
        schema = p("Decoded by ", found.schema, class_="soft")
    return (problem, schema, pre(found.text, class_="record-value", tabindex="0"), cut)


def _formats(ctx: Context, path: str, part: str, data: bytes | None) -> Content:
    if not data:
        return None
    current = ctx.query.get(part, "auto")
    kept = {name: text for name, text in ctx.query.items() if name in ("key", "value") and name != part}
    return (
        [
            a(
                each,
                href=f"{path}?{urlencode({**kept, part: each})}",
                class_="button ghost small",
                aria_current="true" if each == current else None,
            )
            for each in FORMATS
        ],
        a("Download", href=f"{path}/{part}", class_="button small"),
    )


def _headers(headers: tuple[Header, ...]) -> Content:
    if not headers:
        return None
    rows = [
        (code(visible_name(name)), span(shown_header(value), class_="preview"), size(len(value or b"")))
        for name, value in headers[:HEADERS_SHOWN]
    ]
    more = (
        note(f"{len(headers) - HEADERS_SHOWN} more headers are not shown.")
        if len(headers) > HEADERS_SHOWN
        else None
    )
    columns = (Column("Header"), Column("Value"), Column("Size", is_number=True))
    return card("Headers", data_table("Headers", columns, rows), more)


async def download_part(ctx: Context) -> Response:
    """The bytes of the key or the value. The browser is told to keep them in a file and to guess nothing."""
    name, part = ctx.path_text("topic"), ctx.path_text("part")
    partition, offset = ctx.path_number("partition"), ctx.path_number("offset")
    if part not in ("key", "value"):
        raise Refused("a record has a key and a value", 404)
    record = await _record(ctx, name, partition, offset)
    data = record.key if part == "key" else record.value
    if data is None:
        raise Refused(f"the {part} of this record is null", 404)
    headers = {"content-disposition": f'attachment; filename="{name}-{partition}-{record.offset}-{part}.bin"'}
    return Response(data, media_type="application/octet-stream", headers=headers)


async def answer(ctx: Context) -> MessageRow:
    name = ctx.path_text("topic")
    record = await _record(ctx, name, ctx.path_number("partition"), ctx.path_number("offset"))
    return MessageRow(
        ctx.path_number("partition"),
        record.offset,
        record.timestamp,
        await show(record.key, _format(ctx, "key"), ctx.decoder(name, "key"), is_preview=False),
        await show(record.value, _format(ctx, "value"), ctx.decoder(name, "value"), is_preview=False),
        tuple((visible_name(each), shown_header(value)) for each, value in record.headers[:HEADERS_SHOWN]),
    )


# --- produce ---


@dataclass(frozen=True, slots=True)
class Draft:
    """First values of the form's fields."""

    partition: str = ""
    key: str = ""
    value: str = ""
    key_as: str = "text"
    value_as: str = "text"
    headers: str = ""


WRITTEN = (
    ("text", "text"),
    ("json", "JSON, checked"),
    ("base64", "base 64"),
    ("hex", "hexadecimal"),
    ("null", "null"),
)


async def show_produce(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    topic = (await ctx.admin.describe_topics([name]))[name]
    draft = Draft()
    if ctx.query.get("offset"):
        if ctx.mask(name) is not None:
            raise Refused(f"records of {name} are masked: a copy would hold the masks", 403)
        partition = ctx.query_number("partition", 0)
        draft = _copy_of(partition, await _record(ctx, name, partition, ctx.query_number("offset", 0)))
    numbers = [("", "by the key"), *((str(each.index), str(each.index)) for each in topic.partitions[:1_000])]
    form = ctx.form_to(
        f"/topics/{name}/produce",
        div(
            choice("partition", "Partition", numbers, value=draft.partition),
            choice("key_as", "Key is", WRITTEN, value=draft.key_as),
            choice("value_as", "Value is", WRITTEN, value=draft.value_as),
            class_="row",
        ),
        text_field("key", "Key", value=draft.key, rows=1, hint="Left empty as text means no key."),
        text_field("value", "Value", value=draft.value, rows=10),
        text_field("headers", "Headers", value=draft.headers, rows=2, hint="One name: value on each line."),
        div(
            button("Produce", class_="primary", id="produce"),
            a("Cancel", href=f"/topics/{name}/messages", class_="button ghost"),
            class_="actions",
        ),
    )
    return topic_frame(
        ctx, name, "Messages", card("Produce a record", form), card("Produce several", _lines_form(ctx, name))
    )


def _lines_form(ctx: Context, name: str) -> Element:
    hint = 'A record on each line, as in a download, or like {"key": "a", "value": {"amount": 7}}.'
    return folded(
        "Records as lines of JSON …",
        ctx.form_to(
            f"/topics/{name}/produce-lines",
            text_field("lines", "Lines", rows=10, hint=hint, required=True),
            check("partitions", "into the partitions that the lines name"),
            button("Produce the lines", class_="primary", id="produce-lines"),
        ),
    )


def _copy_of(partition: int, record: Record) -> Draft:
    key, key_as = _written(record.key)
    value, value_as = _written(record.value)
    headers = "\n".join(
        f"{name}: {each.decode()}"
        for name, each in record.headers
        if each is not None and _is_line(name, each)
    )
    return Draft(str(partition), key, value, key_as, value_as, headers)


def _written(data: bytes | None) -> tuple[str, str]:
    if data is None:
        return "", "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
    is_plain = "\r" not in text and "\x00" not in text and text == text.strip("\n")
    return (text, "text") if is_plain else (base64.b64encode(data).decode(), "base64")


def _is_line(name: str, value: bytes) -> bool:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return False
    return text.isprintable() and name.isprintable() and ":" not in name


async def produce(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    form = await ctx.form()
    key, value = _given(form, "key"), _given(form, "value")
    partition = form.number("partition") if form.text("partition") else None
    headers = _headers_of(form.raw("headers"))

    async def send() -> tuple[int, int]:
        async with Producer(ctx.connection.properties) as producer:
            sent = await producer.publish(name, value, key=key, headers=headers, partition=partition)
            return sent.partition, sent.offset

    where, offset = await ctx.change("produce", name, send())
    return ctx.redirect(
        f"/topics/{name}/records/{where}/{offset}", f"Written to partition {where} at offset {offset:,}."
    )


async def produce_lines(ctx: Context) -> Response:
    """Write several records. All lines are read before the first one is sent."""
    name = ctx.path_text("topic")
    form = await ctx.form()
    keeps_partitions = form.flag("partitions")
    try:
        records = read_lines(form.raw("lines"))
    except InvalidLine as error:
        raise Refused(f"nothing was written: {error}") from None
    if not records:
        raise Refused("there are no lines")

    async def send() -> int:
        async with Producer(ctx.connection.properties) as producer:
            deliveries = [
                await producer.send(
                    name,
                    each.value,
                    key=each.key,
                    headers=each.headers,
                    partition=each.partition if keeps_partitions else None,
                )
                for each in records
            ]
            outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        failures = [each for each in outcomes if isinstance(each, BaseException)]
        if failures:
            first = reason_of(failures[0]) if isinstance(failures[0], KafkaError) else repr(failures[0])
            written = len(records) - len(failures)
            raise Refused(
                f"{written:,} of {len(records):,} records are written; the first failure: {first}", 409
            )
        return len(records)

    count = await ctx.change("produce", f"{name}, {len(records)} records", send())
    return ctx.redirect(f"/topics/{name}/messages", f"Wrote {count:,} records.")


def _given(form: Form, part: str) -> bytes | None:
    text = form.raw(part)
    try:
        match form.text(f"{part}_as", "text"):
            case "null":
                return None
            case "json":
                json.loads(text)
                return text.encode()
            case "base64":
                return base64.b64decode(text, validate=True)
            case "hex":
                return bytes.fromhex(text)
            case _:
                return None if part == "key" and not text else text.encode()
    except (ValueError, binascii.Error, RecursionError) as error:
        raise Refused(f"the {part} cannot be read: {error}") from None


def _headers_of(text: str) -> list[Header]:
    found: list[Header] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise Refused(f"a header is name: value, not {line[:80]!r}")
        found.append((name.strip(), value.strip().encode()))
    return found


_RECORD = "/topics/{topic}/records/{partition:int}/{offset:int}"
SECTION = Section(
    "Record",
    "/topics",
    routes=(
        get(_RECORD, show_record),
        get(f"{_RECORD}/{{part}}", download_part),
        get("/topics/{topic}/produce", show_produce),
        post("/topics/{topic}/produce", produce),
        post("/topics/{topic}/produce-lines", produce_lines),
    ),
    questions=(
        Question(
            "/api/topics/{topic}/records/{partition:int}/{offset:int}",
            "One record.",
            answer,
            MessageRow,
            (
                Parameter("key", "string", "Format.", FORMATS),
                Parameter("value", "string", "Format.", FORMATS),
            ),
        ),
    ),
    is_in_navigation=False,
)
