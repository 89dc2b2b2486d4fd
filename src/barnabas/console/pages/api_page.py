"""The API: every page's data as JSON."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from barnabas.console.html.components import Column, card, data_table
from barnabas.console.html.elements import a, code, p
from barnabas.console.web.context import Context
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Section, get


async def show(ctx: Context) -> Response:
    found: dict[str, dict[str, Any]] = ctx.console.description["paths"]
    rows = [
        (
            code(f"GET {path}"),
            ", ".join(about["get"]["tags"]),
            about["get"]["summary"],
            ", ".join(each["name"] for each in about["get"]["parameters"]),
        )
        for path, about in found.items()
    ]
    columns = (Column("Request"), Column("Page"), Column("Answer"), Column("Parameters"))
    lead = p(
        "The data of the pages, as JSON. The description for programs is ",
        a("openapi.json", href="/api/openapi.json"),
        ". Changes go through the Kafka protocol, by any client.",
    )
    return ctx.page("API", heading("API"), card(None, lead, data_table("Requests", columns, rows)))


SECTION = Section("API", "/api", routes=(get("/api", show),), is_in_navigation=False)
