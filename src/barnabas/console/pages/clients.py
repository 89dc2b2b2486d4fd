"""Clients: what they say of themselves (KIP-714)."""

from __future__ import annotations

from starlette.responses import Response

from barnabas.console.html.components import Column, card, data_table, empty, folded
from barnabas.console.html.elements import Content, code, p
from barnabas.console.html.figures import duration, moment, number
from barnabas.console.view.interface import NotOffered
from barnabas.console.view.rows import ClientRow
from barnabas.console.web.context import Context
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Question, Section, get

METRICS_SHOWN = 100


async def show(ctx: Context) -> Response:
    lead = "Java clients from 3.7 on and librdkafka push their own metrics, if a subscription asks for them."
    try:
        found = await ctx.view.clients()
    except NotOffered as error:
        return ctx.page("Clients", heading("Clients", below=lead), card(None, empty(p(str(error)))))
    if not found:
        told = empty(
            p("No client has reported yet. Subscribe to all metrics of all clients, for example:"),
            p(code("barnabas config set client-metrics everything --set metrics=* --set interval.ms=10000")),
        )
        return ctx.page("Clients", heading("Clients", below=lead), card(None, told))
    now_ms = ctx.console.clock.now_ms()
    rows = [_row(each, now_ms) for each in found]
    return ctx.page(
        "Clients", heading("Clients", below=lead), card(None, data_table("Clients", _COLUMNS, rows))
    )


def _row(row: ClientRow, now_ms: int) -> tuple[Content, ...]:
    metrics = [
        (code(each.name), ", ".join(f"{name}={value}" for name, value in each.labels), number(each.value))
        for each in row.metrics[:METRICS_SHOWN]
    ]
    columns = (Column("Metric"), Column("Labels"), Column("Value", is_number=True))
    return (
        row.client_id or code(row.instance_id),
        row.software,
        row.user,
        row.host,
        (moment(row.last_push_ms), f", {duration(max(now_ms - row.last_push_ms, 0))} ago"),
        folded(f"{len(row.metrics)} metrics", data_table(f"Metrics of {row.client_id}", columns, metrics)),
    )


async def answer(ctx: Context) -> tuple[ClientRow, ...]:
    return await ctx.view.clients()


_COLUMNS = (
    Column("Client"),
    Column("Software", is_optional=True),
    Column("User", is_optional=True),
    Column("Host"),
    Column("Last report (UTC)", is_optional=True),
    Column("Says"),
)

SECTION = Section(
    "Clients",
    "/clients",
    routes=(get("/clients", show),),
    questions=(Question("/api/clients", "Metrics that clients report.", answer, tuple[ClientRow, ...]),),
)
