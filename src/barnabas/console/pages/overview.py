"""Overview: brokers, controller, partitions at risk, traffic, latencies, live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.responses import Response

from barnabas.console.html.charts import time_line
from barnabas.console.html.components import (
    Column,
    badge,
    card,
    data_table,
    figure_tile,
    folded,
    live_sign,
    note,
    tiles,
)
from barnabas.console.html.elements import Content, Element, a, div, span
from barnabas.console.html.figures import DASH, duration, known, moment, number, rate, size
from barnabas.console.view.history import TrafficHistory
from barnabas.console.view.rows import BrokerRow, Latency, Overview
from barnabas.console.web.context import FAILURES, Context
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Question, Section, get
from barnabas.console.web.streams import event, stream

REFRESH_S = 3.0
CHART_WIDTH = 460.0
"""Two charts stand beside each other."""
TABLE_SAMPLES = 30
FIRST_APIS = ("Produce", "FetchConsumer", "Fetch", "FetchFollower")


async def show(ctx: Context) -> Response:
    found = await ctx.view.overview()
    live = div(
        _figures(found, ctx.connection.traffic),
        id="overview",
        class_="stack",
        hx_swap="innerHTML",
        attributes={"hx-sse:connect": "/overview/live"},
    )
    where = [f"cluster {found.cluster_id}"]
    if found.store:
        where.append(f"metadata in the {found.store} store")
    return ctx.page("Overview", heading("Overview", live_sign(), below=", ".join(where)), live)


async def show_live(ctx: Context) -> Response:
    async def events() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(REFRESH_S)
            if not ctx.may_enter:
                return  # the user has signed out
            try:
                overview = await ctx.connection.live_overview.get()
                found: Content = _figures(overview, ctx.connection.traffic)
            except FAILURES:
                found = note("No broker answers now.", tone="bad")
            yield event(found, ctx.base)

    return stream(events())


async def answer(ctx: Context) -> Overview:
    return await ctx.view.overview()


def _figures(found: Overview, history: TrafficHistory) -> Content:
    lag = None if found.lag_records is None else f"{number(found.lag_records)} records behind"
    traffic = found.traffic
    return (
        tiles(
            figure_tile("Brokers", number(len(found.brokers)), below=_controller(found)),
            figure_tile(
                "Topics",
                a(number(found.topics), href="/topics"),
                below=f"{number(found.partitions)} partitions",
            ),
            figure_tile("Groups", a(number(found.groups), href="/groups"), below=lag),
            figure_tile(
                "Under-replicated",
                number(found.under_replicated),
                tone="warn" if found.under_replicated else "good",
                below="partitions",
            ),
            figure_tile(
                "Offline", number(found.offline), tone="bad" if found.offline else "good", below="partitions"
            ),
            figure_tile("Written", rate(traffic.records_in, " rec"), below=_bytes(traffic.bytes_in, "in")),
            figure_tile("Read", rate(traffic.bytes_out, "B"), below="by consumers"),
            figure_tile("On disk", size(found.size_bytes), below="all replicas"),
        ),
        _charts(history),
        card("Brokers", data_table("Brokers", _BROKER_COLUMNS, [_broker(each) for each in found.brokers])),
        card(
            "Latency, over the last minute",
            data_table("Latency by API", _LATENCY_COLUMNS, map(_latency, sorted(found.latencies, key=_rank))),
        )
        if found.latencies
        else None,
    )


def _charts(history: TrafficHistory) -> Element | None:
    """Traffic since the console looks; nothing before the second sample."""
    figures = (
        ("Written", "Bytes in", history.of(lambda traffic: traffic.bytes_in)),
        ("Read", "Bytes out", history.of(lambda traffic: traffic.bytes_out)),
    )
    if all(len(points) < 2 for _, _, points in figures):
        # A foreign Kafka tells no bytes: records from the movement of its end offsets.
        records = history.of(lambda traffic: traffic.records_in)
        return _chart("Written", "Records", records, _records_rate) if len(records) >= 2 else None
    return div(
        [
            _chart(name, column, points, _bytes_rate, width=CHART_WIDTH)
            for name, column, points in figures
            if len(points) >= 2
        ],
        class_="grid",
    )


def _chart(
    name: str,
    column: str,
    points: list[tuple[int, float]],
    shown: Callable[[float], str],
    width: float = 960.0,
) -> Element:
    columns = (Column("Time (UTC)"), Column(column, is_number=True))
    rows = [(moment(at), shown(value)) for at, value in points[-TABLE_SAMPLES:]]
    return card(
        name,
        time_line(points, name, shown=shown, span=duration, width=width),
        folded(f"{name}, as a table", data_table(f"Samples: {name}", columns, rows)),
    )


def _bytes_rate(value: float) -> str:
    return rate(value, "B")


def _records_rate(value: float) -> str:
    return rate(value, " rec")


def _rank(row: Latency) -> tuple[int, str]:
    """Problems that clients wait for come first."""
    return (FIRST_APIS.index(row.api) if row.api in FIRST_APIS else len(FIRST_APIS)), row.api


def _latency(row: Latency) -> tuple[Content, ...]:
    return (row.api, number(row.count), duration_ms(row.p50_ms), duration_ms(row.p99_ms))


def duration_ms(value: float) -> str:
    return f"{value:.1f} ms" if value < 100 else duration(value)


def _bytes(value: float | None, direction: str) -> str | None:
    return None if value is None else f"{rate(value, 'B')} {direction}"


def _controller(found: Overview) -> Content:
    if found.controller_id < 0:
        return badge("no controller", "bad")
    return f"controller is {found.controller_id}"


def _broker(row: BrokerRow) -> tuple[Content, ...]:
    state: Content = badge("fenced", "warn") if row.is_fenced else badge("up", "good")
    memory = DASH if row.memory_bytes is None else size(row.memory_bytes)
    return (
        a(str(row.broker_id), href=f"/cluster/brokers/{row.broker_id}"),
        (state, " ", badge("controller", "info") if row.is_controller else None),
        span(row.address, class_="mono"),
        known(row.rack),
        number(row.leaders),
        number(row.replicas),
        size(row.size_bytes),
        rate(row.traffic.bytes_in, "B"),
        rate(row.traffic.bytes_out, "B"),
        number(row.connections),
        memory,
    )


_BROKER_COLUMNS = (
    Column("Broker", is_short=True),
    Column("State"),
    Column("Address"),
    Column("Rack", is_optional=True),
    Column("Leads", is_number=True),
    Column("Replicas", is_number=True, is_optional=True),
    Column("Size", is_number=True),
    Column("In", is_number=True, is_optional=True),
    Column("Out", is_number=True, is_optional=True),
    Column("Connections", is_number=True, is_optional=True),
    Column("Memory", is_number=True, is_optional=True),
)
_LATENCY_COLUMNS = (
    Column("API"),
    Column("Requests", is_number=True, is_optional=True),
    Column("Median", is_number=True),
    Column("99 %", is_number=True),
)

SECTION = Section(
    "Overview",
    "/",
    routes=(get("/", show), get("/overview/live", show_live)),
    questions=(
        Question("/api/overview", "Brokers, partitions at risk, traffic and latencies.", answer, Overview),
    ),
)
