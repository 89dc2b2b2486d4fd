"""Groups: their state, members and lag, in records and in time, with its trend."""

from __future__ import annotations

from typing import cast, get_args

from starlette.responses import Response

from barnabas.console.html.charts import sparkline
from barnabas.console.html.components import Column, Sorting, badge, card, data_table, empty, pager
from barnabas.console.html.elements import Content, Element, button, code, div, form, input_, p, span
from barnabas.console.html.figures import DASH, duration, number
from barnabas.console.pages.topic import GROUP_COLUMNS, group_cells
from barnabas.console.view.history import LagHistory
from barnabas.console.view.rows import GroupQuery, GroupRow, GroupSort, Page
from barnabas.console.web.context import Context, Refused
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Parameter, Question, Section, get

LIMIT = 50
STEADY = 0.05
"""Records a second; a lag that changes by less is steady."""


def query_of(ctx: Context) -> GroupQuery:
    sort = ctx.query.get("sort", "name")
    if sort not in get_args(GroupSort):
        raise Refused(f"groups are sorted by {', '.join(get_args(GroupSort))}")
    return GroupQuery(
        search=ctx.query.get("search", "").strip(),
        sort=cast("GroupSort", sort),
        descending=ctx.query.get("order") == "desc",
        offset=ctx.query_number("offset", 0),
        limit=ctx.query_number("limit", LIMIT, at_least=1, at_most=1_000),
        topic=ctx.query.get("topic", "").strip(),
    )


async def show(ctx: Context) -> Response:
    query = query_of(ctx)
    page = await ctx.view.groups(query)
    if ctx.request.headers.get("hx-request") == "true":
        return ctx.fragment(_list(ctx, query, page))
    search = form(
        div(
            input_(
                type="search",
                name="search",
                value=query.search,
                placeholder="Search groups  ( / )",
                aria_label="Search groups",
                hx_get="/groups",
                hx_trigger="input changed delay:200ms, search",
                hx_target="#groups",
                hx_replace_url="true",
                maxlength=249,
            ),
            class_="search",
        ),
        button("Search", class_="hidden"),
        method="get",
        action="/groups",
        class_="row",
    )
    listed = div(_list(ctx, query, page), id="groups", aria_live="polite")
    return ctx.page("Groups", heading("Groups"), card(None, search, listed))


def _list(ctx: Context, query: GroupQuery, page: Page[GroupRow]) -> Content:
    kept = {"search": query.search}
    shown_order = {**kept, "sort": query.sort, "order": "desc" if query.descending else "asc"}
    if not page.total:
        if query.search:
            return empty(p("No group has ", code(query.search), " in its name."))
        if ctx.acts_for_visitor:
            return empty(p("There are no groups that you may see. A right to describe a group shows it."))
        return empty(
            p("There are no groups yet. A consumer with a group.id makes one:"),
            code("barnabas consume TOPIC --group GROUP"),
        )
    history = ctx.connection.history
    rows = [(*group_cells(row), trend(history, row)) for row in page.rows]
    return (
        data_table(
            "Groups",
            (*GROUP_COLUMNS, Column("Trend", is_optional=True)),
            rows,
            sorting=Sorting("/groups", kept, query.sort, query.descending),
        ),
        pager("/groups", shown_order, offset=query.offset, limit=query.limit, total=page.total),
    )


def trend(history: LagHistory, row: GroupRow) -> Content:
    points = history.of(row.group_id)
    if len(points) < 2:
        return DASH
    said = trend_word(history.trend(row.group_id))
    lags = [float(lag) for _, lag in points]
    told = f"from {lags[0]:,.0f} to {lags[-1]:,.0f} records"
    return span(sparkline(lags, f"Lag of {row.group_id}", told), " ", said, class_="trend")


def trend_word(slope: float | None) -> Element | str:
    if slope is None:
        return DASH
    if abs(slope) < STEADY:
        return badge("steady")
    word = f"{number(abs(slope))}/s"
    return badge(f"grows {word}", "warn") if slope > 0 else badge(f"shrinks {word}", "good")


def caught_up_in(lag: int | None, slope: float | None) -> str:
    """Time until the lag is gone, if it goes on shrinking as it does."""
    if lag == 0:
        return "now"
    if not lag or slope is None or slope > -STEADY:
        return DASH
    return f"about {duration(lag * 1_000 / -slope)}"


async def answer(ctx: Context) -> Page[GroupRow]:
    return await ctx.view.groups(query_of(ctx))


SECTION = Section(
    "Groups",
    "/groups",
    routes=(get("/groups", show),),
    questions=(
        Question(
            "/api/groups",
            "Groups, page by page.",
            answer,
            Page[GroupRow],
            (
                Parameter("search", "string", "Words that the name contains."),
                Parameter("topic", "string", "Groups of this topic alone."),
                Parameter("sort", "string", "Order.", get_args(GroupSort)),
                Parameter("order", "string", "Direction.", ("asc", "desc")),
                Parameter("offset", "integer", "Rows before the page."),
                Parameter("limit", "integer", "Rows of the page, at most 1,000."),
            ),
        ),
    ),
)
