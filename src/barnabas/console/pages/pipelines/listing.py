"""Pipelines: states, rates, lag."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from barnabas.console.html.components import Column, card, data_table, empty
from barnabas.console.html.elements import Content, a, code, p
from barnabas.console.html.figures import known, number, rate
from barnabas.console.pages.pipelines.asking import ask
from barnabas.console.pages.pipelines.editing import NEW
from barnabas.console.pages.pipelines.status import Status, page_path
from barnabas.console.web.context import Context
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Question, Section, get


async def show(ctx: Context) -> Response:
    if ctx.console.settings.pipelines_url is None:
        told = empty(
            p("This console knows no pipeline service."),
            p(
                "Start one with ",
                code("barnabas pipeline serve"),
                ", and the console with ",
                code("--pipelines URL"),
                ", the address that it prints.",
            ),
        )
        return ctx.page("Pipelines", heading("Pipelines"), card(None, told))
    found = await _all(ctx)
    rows = [_row(Status(name, each["status"])) for name, each in sorted(found.items())]
    nothing = empty(
        p("There are no pipelines."), p("Submit one with ", code("barnabas pipeline start FILE"), ".")
    )
    table = data_table("Pipelines", _COLUMNS, rows) if rows else nothing
    new = a("New pipeline", href=NEW, class_="button primary") if ctx.may_edit("pipelines") else None
    return ctx.page("Pipelines", heading("Pipelines", new), card(None, table))


async def answer(ctx: Context) -> dict[str, Any]:
    return await _all(ctx)


async def _all(ctx: Context) -> dict[str, Any]:
    found: dict[str, Any] = await ask(ctx, "GET", "/connectors?expand=status")
    return found


def _row(found: Status) -> tuple[Content, ...]:
    about = found.about
    return (
        a(found.name, href=page_path(found.name)),
        found.badge(),
        known(about.get("delivery")),
        number(about.get("records")),
        rate(about.get("records_per_second")),
        number(about.get("lag")),
        number(about.get("dead_letters")),
        number(about.get("restarts")),
    )


_COLUMNS = (
    Column("Pipeline"),
    Column("State"),
    Column("Delivery", is_optional=True),
    Column("Records", is_number=True, is_optional=True),
    Column("Rate", is_number=True),
    Column("Lag", is_number=True),
    Column("Dead letters", is_number=True, is_optional=True),
    Column("Restarts", is_number=True, is_optional=True),
)

SECTION = Section(
    "Pipelines",
    "/pipelines",
    routes=(get("/pipelines", show),),
    questions=(Question("/api/pipelines", "Pipelines and their states.", answer, dict[str, Any]),),
)
