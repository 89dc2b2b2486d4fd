"""Statistics of a topic's records: sizes, keys, times, of the newest ones or from a time on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.responses import Response

from barnabas.console.html.charts import time_line
from barnabas.console.html.components import Column, card, choice, data_table, empty, facts, folded, note
from barnabas.console.html.elements import Content, Element, a, button, div, form, p, span
from barnabas.console.html.figures import DASH, duration, moment, number, size
from barnabas.console.pages.messages import bounds_of, partitions_of
from barnabas.console.pages.topic import topic_frame
from barnabas.console.records.browsing import Browser
from barnabas.console.records.decoding import show as shown_bytes
from barnabas.console.records.expression import Predicate
from barnabas.console.records.previews import preview
from barnabas.console.records.statistics import RECORDS_MAX, Figures, Sizes, Statistics
from barnabas.console.web.context import Context, Refused
from barnabas.console.web.section import Parameter, Question, Section, get

RECORDS = 10_000
WINDOW = 500
CHOICES = (1_000, 10_000, 50_000, RECORDS_MAX)


@dataclass(frozen=True, slots=True)
class Read:
    figures: Figures
    scanned_bytes: int
    is_complete: bool
    """Whether these are all records."""
    problems: tuple[str, ...]


async def read(ctx: Context, name: str) -> Read:
    """Figures of the newest records, as many as the query asks for, within the bounds of a search."""
    partitions = await partitions_of(ctx, name)
    wanted = partitions
    if ctx.query.get("partition"):
        wanted = [ctx.query_number("partition", 0)]
        if not set(wanted) <= set(partitions):
            raise Refused(f"{name} has the partitions 0 to {len(partitions) - 1}")
    statistics = Statistics(ctx.query_number("records", RECORDS, at_least=1, at_most=RECORDS_MAX))
    bounds = await bounds_of(ctx, name, wanted)
    each_record = Predicate(statistics, 0)  # on the loop: the figures are not for several threads
    browser = Browser(ctx.cluster, ctx.console.clock, name, bounds, each_record, mask=ctx.mask(name))
    async with ctx.console.reading:
        page = await browser.older({each: at.end for each, at in bounds.items()}, WINDOW)
        figures = await asyncio.to_thread(statistics.figures)
    return Read(figures, page.scanned_bytes, page.is_complete, tuple(page.unreadable))


async def show(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    found = await read(ctx, name)
    figures = found.figures
    partitions = [("", "all"), *((str(each), str(each)) for each in (await partitions_of(ctx, name))[:1_000])]
    search = form(
        choice(
            "records",
            "Newest records",
            [(str(each), f"{each:,}") for each in CHOICES],
            value=ctx.query.get("records", str(RECORDS)),
        ),
        choice("partition", "Partition", partitions, value=ctx.query.get("partition", "")),
        button("Read", class_="primary"),
        method="get",
        action=f"/topics/{name}/statistics",
        class_="row",
    )
    told = f"{number(figures.records)} records read, {size(found.scanned_bytes)}"
    told += ": all that there are." if found.is_complete else ": the newest ones."
    above = card(None, search, [note(each, tone="warn") for each in found.problems], p(told, class_="soft"))
    if not figures.records:
        return topic_frame(ctx, name, "Statistics", above, card(None, empty(p("There are no records here."))))
    return topic_frame(
        ctx,
        name,
        "Statistics",
        above,
        card(None, _facts(name, figures)),
        _over_time(figures),
        div(_sizes(figures), await _keys(figures), _partitions(name, figures), class_="grid"),
    )


def _facts(name: str, found: Figures) -> Element:
    largest: Content = DASH
    if found.largest is not None and found.values is not None:
        partition, offset = found.largest
        largest = a(size(found.values.most), href=f"/topics/{name}/records/{partition}/{offset}")
    passed_ms = None if found.first_ms is None or found.last_ms is None else found.last_ms - found.first_ms
    return facts(
        (
            ("First time (UTC)", moment(found.first_ms)),
            ("Last time (UTC)", moment(found.last_ms)),
            ("Time between", duration(passed_ms)),
            ("Different keys", number(found.distinct_keys)),
            ("Without a key", _part(found.null_keys, found.records)),
            ("Tombstones", _part(found.null_values, found.records)),
            ("With headers", _part(found.with_headers, found.records)),
            ("Largest value", largest),
        )
    )


def _part(count: int, records: int) -> Content:
    return (number(count), span(f" ({count / records:.0%})", class_="soft") if count else None)


def _over_time(found: Figures) -> Element | None:
    if len(found.by_time) < 2:
        return None
    points = [(at, float(records)) for at, records in found.by_time]
    period = found.by_time[1][0] - found.by_time[0][0]
    name = f"Records in each {duration(period)}"
    rows = [(moment(at), number(records)) for at, records in found.by_time]
    columns = (Column("From (UTC)"), Column("Records", is_number=True))
    return card(
        name,
        time_line(points, name, shown=number, span=duration, ends=("first", "last")),
        folded("The same as a table", data_table(name, columns, rows)),
    )


def _sizes(found: Figures) -> Element:
    columns = (
        Column("Of", is_short=True),
        Column("Least", is_number=True),
        Column("Median", is_number=True),
        Column("99 %", is_number=True),
        Column("Most", is_number=True),
        Column("Sum", is_number=True, is_optional=True),
    )
    rows = [_size_row("Keys", found.keys), _size_row("Values", found.values)]
    return card("Sizes", data_table("Sizes of keys and values", columns, rows))


def _size_row(name: str, found: Sizes | None) -> tuple[Content, ...]:
    if found is None:
        return (name, *[DASH] * 5)
    return (name, *map(size, (found.least, found.median, found.p99, found.most, found.total)))


async def _keys(found: Figures) -> Element | None:
    if not found.top_keys:
        return None
    rows = [
        (preview(await shown_bytes(each.key, "auto", None, is_preview=True)), number(each.records))
        for each in found.top_keys
    ]
    columns = (Column("Key"), Column("Records", is_number=True))
    return card("Keys with the most records", data_table("Keys with the most records", columns, rows))


def _partitions(name: str, found: Figures) -> Element:
    rows = [
        (
            a(str(each), href=f"/topics/{name}/partitions/{each}"),
            number(records),
            f"{records / found.records:.1%}",
        )
        for each, records in found.by_partition
    ]
    columns = (
        Column("Partition", is_short=True),
        Column("Records", is_number=True),
        Column("Share", is_number=True),
    )
    return card("Partitions", data_table("Records by partition", columns, rows))


# --- the same as JSON ---


@dataclass(frozen=True, slots=True)
class KeyRow:
    key: str
    records: int


@dataclass(frozen=True, slots=True)
class StatisticsRow:
    records: int
    is_complete: bool
    """Whether these are all records of the topic."""
    first_ms: int | None
    last_ms: int | None
    distinct_keys: int
    null_keys: int
    null_values: int
    with_headers: int
    keys: Sizes | None
    values: Sizes | None
    top_keys: tuple[KeyRow, ...]
    by_partition: tuple[tuple[int, int], ...]
    by_time: tuple[tuple[int, int], ...]


async def answer(ctx: Context) -> StatisticsRow:
    found = await read(ctx, ctx.path_text("topic"))
    figures = found.figures
    keys = [
        KeyRow((await shown_bytes(each.key, "auto", None, is_preview=True)).text, each.records)
        for each in figures.top_keys
    ]
    return StatisticsRow(
        figures.records,
        found.is_complete,
        figures.first_ms,
        figures.last_ms,
        figures.distinct_keys,
        figures.null_keys,
        figures.null_values,
        figures.with_headers,
        figures.keys,
        figures.values,
        tuple(keys),
        figures.by_partition,
        figures.by_time,
    )


SECTION = Section(
    "Statistics",
    "/topics",
    routes=(get("/topics/{topic}/statistics", show),),
    questions=(
        Question(
            "/api/topics/{topic}/statistics",
            "Sizes, keys and times of the newest records.",
            answer,
            StatisticsRow,
            (
                Parameter("records", "integer", f"Records, at most {RECORDS_MAX:,}."),
                Parameter("partition", "integer", "One partition; all without it."),
            ),
        ),
    ),
    is_in_navigation=False,
)
