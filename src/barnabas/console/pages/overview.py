"""Overview: brokers, controller, partitions at risk, traffic, latencies, live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import Response

from barnabas.console.html.components import Column, badge, card, data_table, figure_tile, note, tiles
from barnabas.console.html.elements import Content, a, div, span
from barnabas.console.html.figures import DASH, duration, known, number, rate, size
from barnabas.console.view.rows import BrokerRow, Overview
from barnabas.console.web.context import FAILURES, Context
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Question, Section, get
from barnabas.console.web.streams import event, stream

REFRESH_S = 3.0


async def show(ctx: Context) -> Response:
    found = await ctx.view.overview()
    live = div(
        _figures(found),
        id="overview",
        class_="stack",
        hx_swap="innerHTML",
        attributes={"hx-sse:connect": "/overview/live"},
    )
    where = [f"cluster {found.cluster_id}"]
    if found.store:
        where.append(f"metadata in the {found.store} store")
    return ctx.page(
        "Overview", heading("Overview", span("live", class_="live"), below=", ".join(where)), live
    )


async def show_live(ctx: Context) -> Response:
    async def events() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(REFRESH_S)
            if not ctx.may_enter:
                return  # the user has signed out
            try:
                found: Content = _figures(await ctx.view.overview())
            except FAILURES:
                found = note("No broker answers now.", tone="bad")
            yield event(found)

    return stream(events())


async def answer(ctx: Context) -> Overview:
    return await ctx.view.overview()


def _figures(found: Overview) -> Content:
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
        card("Brokers", data_table("Brokers", _BROKER_COLUMNS, [_broker(each) for each in found.brokers])),
        card(
            "Latency",
            data_table(
                "Latency by API",
                _LATENCY_COLUMNS,
                [
                    (each.api, number(each.count), duration_ms(each.p50_ms), duration_ms(each.p99_ms))
                    for each in found.latencies
                ],
            ),
        )
        if found.latencies
        else None,
    )


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
    Column("Broker"),
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
    Column("Requests", is_number=True),
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
