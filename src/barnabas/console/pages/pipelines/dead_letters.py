"""Dead letters of a pipeline in place: the newest of their topic, with reason and source record.

A letter keeps key, value and headers of its record. Headers named as in Connect say where it comes from and
why it is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.console.html.components import Column, badge, data_table, empty, note
from barnabas.console.html.elements import Content, a, p, span
from barnabas.console.html.figures import DASH, moment
from barnabas.console.pages.pipelines.graph import is_topic_name
from barnabas.console.records.browsing import Bounds, Browser, Found
from barnabas.console.records.decoding import ShownBytes, show, visible_name
from barnabas.console.records.expression import Candidate, Predicate
from barnabas.console.records.previews import preview
from barnabas.console.schemas.decoders import PartDecoder
from barnabas.console.web.context import FAILURES, Context
from barnabas.core.errors import UnknownTopicOrPartition
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST

PREFIX: Final = "__connect.errors."
SHOWN: Final = 20
REASON_CHARACTERS: Final = 600
_STAGES: Final = {
    "VALUE_CONVERTER": "decoding the value",
    "KEY_CONVERTER": "decoding the key",
    "HEADER_CONVERTER": "decoding a header",
    "TRANSFORMATION": "a transform",
    "TASK_PUT": "the sink",
}


@dataclass(frozen=True, slots=True)
class Letter:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    value: ShownBytes
    stage: str
    reason: str
    source_topic: str
    source_partition: int | None
    source_offset: int | None


@dataclass(frozen=True, slots=True)
class Letters:
    rows: tuple[Letter, ...]
    is_complete: bool
    """Whether there are no older ones."""


async def newest_letters(ctx: Context, topic: str, pipeline: str) -> Letters:
    """UNKNOWN_TOPIC_OR_PARTITION while no record was bad."""
    described = (await ctx.admin.describe_topics([topic]))[topic]
    places = [TopicPartition(topic, each.index) for each in described.partitions]
    firsts = await ctx.admin.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = await ctx.admin.list_offsets(dict.fromkeys(places, LATEST), read_committed=True)
    bounds = {at.partition: Bounds(firsts[at], ends[at]) for at in places}
    wanted = pipeline.encode()

    def is_of_pipeline(record: Candidate) -> bool:
        """Several pipelines may share a topic of dead letters."""
        written = [value for name, value in record.headers if name == f"{PREFIX}connector.name"]
        return not written or written[-1] == wanted

    browser = Browser(
        ctx.cluster,
        ctx.console.clock,
        topic,
        bounds,
        Predicate(is_of_pipeline, 1),
        mask=ctx.mask(topic),
        committed_only=True,
    )
    page = await browser.older({each: at.end for each, at in bounds.items()}, SHOWN)
    decoder = ctx.decoder(topic, "value")
    return Letters(tuple([await _letter(decoder, topic, each) for each in page.records]), page.is_complete)


async def _letter(decoder: PartDecoder, topic: str, found: Found) -> Letter:
    record = found.record
    said = {
        name.removeprefix(PREFIX): visible_name((value or b"").decode(errors="replace"))
        for name, value in record.headers
        if name.startswith(PREFIX)
    }
    stage = said.get("stage", "")
    return Letter(
        topic,
        found.partition,
        record.offset,
        record.timestamp,
        await show(record.value, "auto", decoder, is_preview=True),
        _STAGES.get(stage, stage.lower()),
        said.get("exception.message", "")[:REASON_CHARACTERS],
        said.get("topic", ""),
        _number(said, "partition"),
        _number(said, "offset"),
    )


def _number(said: Mapping[str, str], name: str) -> int | None:
    shown = said.get(name, "")
    return int(shown) if shown.isascii() and shown.isdigit() and len(shown) <= 18 else None


async def letters_table(ctx: Context, topic: str, pipeline: str, own_topics: frozenset[str]) -> Content:
    """`own_topics` are those whose records this console can show."""
    try:
        found = await newest_letters(ctx, topic, pipeline)
    except UnknownTopicOrPartition:
        return empty(p(f"Topic {topic} does not exist yet: no record was bad."))
    except FAILURES as error:
        return note(f"The dead letters cannot be read: {error}", tone="warn")
    if not found.rows:
        return empty(p("No record was bad."))
    return data_table(
        "Dead letters", _COLUMNS, [_row(each, own_topics) for each in found.rows], id_="dead-letters"
    )


def _row(letter: Letter, own_topics: frozenset[str]) -> tuple[Content, ...]:
    return (
        a(
            f"{letter.partition} · {letter.offset:,}",
            href=f"/topics/{letter.topic}/records/{letter.partition}/{letter.offset}",
            class_="mono",
            title=f"the letter: partition {letter.partition}, offset {letter.offset}",
        ),
        moment(letter.timestamp_ms),
        _source(letter, own_topics),
        (badge(letter.stage), " ") if letter.stage else DASH,
        span(letter.reason, class_="record-value") if letter.reason else DASH,
        preview(letter.value),
    )


def _source(letter: Letter, own_topics: frozenset[str]) -> Content:
    if letter.source_partition is None or letter.source_offset is None:
        return letter.source_topic or DASH
    shown = f"{letter.source_topic} {letter.source_partition} · {letter.source_offset:,}"
    if letter.source_topic not in own_topics or not is_topic_name(letter.source_topic):
        return span(shown, class_="mono")
    path = f"/topics/{letter.source_topic}/records/{letter.source_partition}/{letter.source_offset}"
    return a(shown, href=path, class_="mono")


_COLUMNS = (
    Column("Letter"),
    Column("Time (UTC)", is_optional=True),
    Column("Source record"),
    Column("Failed at", is_optional=True),
    Column("Reason"),
    Column("Value", is_optional=True),
)
