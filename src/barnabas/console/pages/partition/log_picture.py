"""A picture of one partition's log: segments, indexes, epochs, watermarks, followers, groups.

The picture has offsets from left to right. Below it stands everything that it shows, as tables with a
sentence on what each thing is: people learn Kafka by looking.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlencode

from starlette.responses import Response

from barnabas.console.html.components import Column, badge, card, crumbs, data_table, facts, live_sign, note
from barnabas.console.html.elements import Content, Element, a, div, p, small, span
from barnabas.console.html.figures import DASH, moment, number, size
from barnabas.console.pages.partition.log_chart import log_chart
from barnabas.console.view.rows import FollowerRow, LogPicture, SegmentRow
from barnabas.console.web.connections import reason_of
from barnabas.console.web.context import FAILURES, Context
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Question, Section, get
from barnabas.console.web.streams import event, stream

REFRESH_S = 3.0
ROWS_MAX = 500


async def show(ctx: Context) -> Response:
    name, partition = ctx.path_text("topic"), ctx.path_number("partition")
    found = await ctx.view.log_picture(name, partition)
    live = div(
        _figures(found),
        id="log",
        class_="stack",
        attributes={"hx-sse:connect": f"/topics/{name}/partitions/{partition}/live"},
    )
    messages = a(
        "Messages", href=f"/topics/{name}/messages?{urlencode({'partition': partition})}", class_="button"
    )
    return ctx.page(
        f"{name} · {partition}",
        heading(
            f"Partition {partition}",
            live_sign(),
            messages,
            above=crumbs((("Topics", "/topics"), (name, f"/topics/{name}"))),
        ),
        live,
    )


async def show_live(ctx: Context) -> Response:
    name, partition = ctx.path_text("topic"), ctx.path_number("partition")

    async def events() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(REFRESH_S)
            if not ctx.may_enter:
                return  # the user has signed out
            try:
                yield event(_figures(await ctx.view.log_picture(name, partition)), ctx.base)
            except FAILURES as error:
                yield event(note(reason_of(error), tone="bad"), ctx.base)

    return stream(events())


def _figures(found: LogPicture) -> Content:
    return (
        card(
            "The log",
            log_chart(found),
            p(
                "Records are appended on the right. Retention removes whole segments on the left.",
                class_="soft",
            ),
            _offsets(found),
        ),
        _segments(found),
        div(_followers(found), _epochs(found), _transactions(found), _groups(found), class_="grid"),
    )


def _offsets(found: LogPicture) -> Element:
    return facts(
        (
            ("Leader", DASH if found.leader_id < 0 else f"broker {found.leader_id}"),
            (
                "Leader epoch",
                _explained(
                    found.leader_epoch if found.leader_epoch >= 0 else None, "Each leader has its own."
                ),
            ),
            ("Log start offset", _explained(found.start_offset, "The first offset that can be read.")),
            (
                "Last stable offset",
                _explained(
                    found.last_stable_offset,
                    "Readers of committed records stop here.",
                ),
            ),
            (
                "High watermark",
                _explained(
                    found.high_watermark,
                    "All replicas in sync have what is before it. Consumers see no more.",
                ),
            ),
            ("Log end offset", _explained(found.end_offset, "Where the next record goes.")),
            (
                "Recovery point",
                _explained(
                    found.recovery_point, "Records before it are flushed. Recovery does not read them."
                ),
            ),
            ("Size", size(found.size_bytes)),
            ("Segments", number(len(found.segments) or None)),
        )
    )


def _explained(value: int | None, meaning: str) -> Content:
    return (number(value), small(meaning, class_="hint"))


def _segments(found: LogPicture) -> Content:
    if not found.segments:
        return card(
            "Segments",
            note(
                "Only the offsets are known. The console of `barnabas start --console` shows the files, too."
            ),
        )
    rows = [_segment(each) for each in reversed(found.segments[-ROWS_MAX:])]
    return card(
        "Segments",
        p(
            "A segment is a file of records, named after its first offset. Its index says where in the file"
            " some of its offsets are, its time index the same for times.",
            class_="soft",
        ),
        data_table("Segments, the newest first", _SEGMENT_COLUMNS, rows),
    )


def _segment(row: SegmentRow) -> tuple[Content, ...]:
    return (
        (
            span(f"{row.base_offset:020d}.log", class_="mono"),
            " ",
            badge("active", "good") if row.is_active else None,
        ),
        number(row.next_offset - row.base_offset),
        size(row.size_bytes),
        size(row.index_bytes),
        size(row.time_index_bytes),
        size(row.transaction_index_bytes),
        moment(row.first_timestamp_ms),
        moment(row.largest_timestamp_ms),
    )


def _followers(found: LogPicture) -> Content:
    if not found.followers:
        return None
    columns = (
        Column("Replica", is_short=True),
        Column("State"),
        Column("Log end", is_number=True),
        Column("Behind", is_number=True),
        Column("Caught up", is_optional=True),
    )
    return card(
        "Followers", data_table("Followers", columns, [_follower(found, each) for each in found.followers])
    )


def _follower(found: LogPicture, row: FollowerRow) -> tuple[Content, ...]:
    end = found.end_offset
    behind = None if end is None or row.end_offset is None else max(end - row.end_offset, 0)
    return (
        str(row.broker_id),
        badge("in sync", "good") if row.is_in_sync else badge("out of sync", "warn"),
        number(row.end_offset),
        number(behind),
        moment(row.caught_up_ms),
    )


def _epochs(found: LogPicture) -> Content:
    if not found.epochs:
        return None
    rows = [(str(each.epoch), number(each.start_offset)) for each in reversed(found.epochs[-ROWS_MAX:])]
    return card(
        "Leader epochs",
        p(
            "Each leader writes in an epoch of its own, so that replicas find where their logs part.",
            class_="soft",
        ),
        data_table(
            "Leader epochs", (Column("Epoch", is_short=True), Column("From offset", is_number=True)), rows
        ),
    )


def _transactions(found: LogPicture) -> Content:
    rows: list[tuple[Content, ...]] = [
        (str(producer), badge("open", "warn"), number(first), DASH)
        for producer, first in found.open_transactions
    ]
    rows += [
        (str(producer), badge("aborted", "bad"), number(first), number(last))
        for producer, first, last in found.aborted_transactions
    ]
    if not rows:
        return None
    columns = (
        Column("Producer id"),
        Column("State"),
        Column("From offset", is_number=True),
        Column("To offset", is_number=True),
    )
    return card("Transactions", data_table("Transactions", columns, rows))


def _groups(found: LogPicture) -> Content:
    if not found.committed:
        return None
    rows = [
        (
            a(name, href=f"/group?{urlencode({'id': name})}"),
            number(offset),
            number(max(found.high_watermark - offset, 0)),
        )
        for name, offset in found.committed[:ROWS_MAX]
    ]
    columns = (Column("Group"), Column("Committed", is_number=True), Column("Lag", is_number=True))
    return card("Groups", data_table("Groups that read this partition", columns, rows))


async def answer(ctx: Context) -> LogPicture:
    return await ctx.view.log_picture(ctx.path_text("topic"), ctx.path_number("partition"))


_SEGMENT_COLUMNS = (
    Column("File"),
    Column("Offsets", is_number=True),
    Column("Size", is_number=True),
    Column("Index", is_number=True, is_optional=True),
    Column("Time index", is_number=True, is_optional=True),
    Column("Txn index", is_number=True, is_optional=True),
    Column("First time (UTC)", is_optional=True),
    Column("Last time (UTC)", is_optional=True),
)

_BASE = "/topics/{topic}/partitions/{partition:int}"
SECTION = Section(
    "Partition",
    "/topics",
    routes=(get(_BASE, show), get(f"{_BASE}/live", show_live)),
    questions=(Question(f"/api{_BASE}", "The log of one partition.", answer, LogPicture),),
    is_in_navigation=False,
)
