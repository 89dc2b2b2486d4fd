"""Topics: search, order, page by page, and a form for a new one."""

from __future__ import annotations

from typing import cast, get_args

from starlette.responses import Response

from barnabas.client.admin.calls.topics import BY_THE_BROKER, NewTopic
from barnabas.console.html.components import (
    Column,
    Sorting,
    badge,
    card,
    check,
    data_table,
    empty,
    field,
    pager,
    text_field,
)
from barnabas.console.html.elements import Content, Element, a, button, code, div, form, input_, p
from barnabas.console.html.figures import number, rate, size
from barnabas.console.view.rows import Page, TopicQuery, TopicRow, TopicSort
from barnabas.console.web.context import Context, Refused
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Parameter, Question, Section, get, post
from barnabas.protocol.config_numbers import ResourceType

LIMIT = 50
TOPIC_SOURCE = "topic"
"""Source of the settings that a topic has of its own."""
NEW = "/new-topic"
"""Not below /topics, where a topic may have any name."""


def query_of(ctx: Context) -> TopicQuery:
    sort = ctx.query.get("sort", "name")
    if sort not in get_args(TopicSort):
        raise Refused(f"topics are sorted by {', '.join(get_args(TopicSort))}")
    return TopicQuery(
        search=ctx.query.get("search", "").strip(),
        sort=cast("TopicSort", sort),
        descending=ctx.query.get("order") == "desc",
        offset=ctx.query_number("offset", 0),
        limit=ctx.query_number("limit", LIMIT, at_least=1, at_most=1_000),
        include_internal=ctx.query.get("internal") == "true",
    )


async def show(ctx: Context) -> Response:
    query = query_of(ctx)
    page = await ctx.view.topics(query)
    if ctx.request.headers.get("hx-request") == "true":
        return ctx.fragment(_list(ctx, query, page))
    search = form(
        div(
            input_(
                type="search",
                name="search",
                value=query.search,
                placeholder="Search topics  ( / )",
                aria_label="Search topics",
                hx_get="/topics",
                hx_trigger="input changed delay:200ms, search",
                hx_target="#topics",
                hx_replace_url="true",
                attributes={"hx-include": "closest form"},
                maxlength=249,
            ),
            class_="search",
        ),
        check("internal", "internal topics", checked=query.include_internal),
        button("Search", class_="hidden"),
        method="get",
        action="/topics",
        class_="row",
        attributes={"data-submit-on-change": True},
    )
    new = a("New topic", href=NEW, class_="button primary") if ctx.may_change else None
    return ctx.page(
        "Topics",
        heading("Topics", new),
        card(None, search, div(_list(ctx, query, page), id="topics", aria_live="polite")),
    )


def _list(ctx: Context, query: TopicQuery, page: Page[TopicRow]) -> Content:
    kept = (
        {"search": query.search, "internal": "true"} if query.include_internal else {"search": query.search}
    )
    shown_order = {**kept, "sort": query.sort, "order": "desc" if query.descending else "asc"}
    if not page.total:
        if query.search:
            return empty(p("No topic has ", code(query.search), " in its name."))
        if ctx.acts_for_visitor:
            return empty(
                p("There are no topics that you may see."), p("A right to describe a topic shows it.")
            )
        new = a("New topic", href=NEW, class_="button") if ctx.may_change else None
        return empty(p("There are no topics yet. A producer makes one by its first record."), new)
    return (
        data_table(
            "Topics",
            _COLUMNS,
            [_row(each) for each in page.rows],
            sorting=Sorting("/topics", kept, query.sort, query.descending),
        ),
        pager("/topics", shown_order, offset=query.offset, limit=query.limit, total=page.total),
    )


def _row(row: TopicRow) -> tuple[Content, ...]:
    return (
        (a(row.name, href=f"/topics/{row.name}"), " ", badge("internal") if row.is_internal else None),
        number(row.partitions),
        number(row.replication_factor),
        health(row),
        number(row.records),
        size(row.size_bytes),
        rate(row.traffic.records_in),
        number(row.groups),
    )


def health(row: TopicRow) -> Element:
    if row.offline:
        return badge(f"{row.offline} offline", "bad")
    if row.under_replicated:
        return badge(f"{row.under_replicated} under-replicated", "warn")
    return badge("in sync", "good")


# --- a new topic ---


async def show_new(ctx: Context) -> Response:
    """The form, empty or with what another topic has."""
    like = ctx.query.get("like", "")
    partitions, replicas, settings = await _shape_of(ctx, like) if like else (None, None, "")
    form_ = ctx.form_to(
        NEW,
        field("name", "Name", required=True, maxlength=249, pattern="[a-zA-Z0-9._\\-]+", autofocus=True,
              hint="Letters, digits, dot, underscore and dash."),
        div(
            field("partitions", "Partitions", kind="number", value=partitions, min=1,
                  placeholder="the default"),
            field("replication", "Replicas of each", kind="number", value=replicas, min=1,
                  placeholder="the default"),
            class_="row",
        ),
        text_field("settings", "Settings", value=settings,
                   hint="name=value on each line: retention.ms=86400000", rows=3),
        div(
            button("Create", class_="primary"),
            button("Check only", name="check", value="true"),
            a("Cancel", href="/topics", class_="button ghost"),
            class_="actions",
        ),
    )  # fmt: skip
    lead = f"With the partitions, replicas and settings of {like}. Its records stay there." if like else None
    return ctx.page("New topic", heading("New topic", below=lead), card(None, form_))


async def _shape_of(ctx: Context, name: str) -> tuple[int, int, str]:
    """Partitions, replicas and own settings of a topic."""
    row = (await ctx.view.topic(name)).row
    resource = (ResourceType.TOPIC, name)
    found = (await ctx.admin.describe_configs([resource]))[resource]
    own = [f"{each.name}={each.value}" for each in found if each.source == TOPIC_SOURCE]
    return row.partitions, row.replication_factor, "\n".join(own)


async def create(ctx: Context) -> Response:
    form_ = await ctx.form()
    name = form_.text("name")
    topic = NewTopic(
        name,
        form_.number("partitions", BY_THE_BROKER),
        form_.number("replication", BY_THE_BROKER),
        settings_of(form_.raw("settings")),
    )
    if form_.flag("check"):
        found = await ctx.admin.create_topics([topic], validate_only=True)
        made = found[name]
        said = (
            f"{name} can be created: {made.partitions} partitions, {made.replication_factor} replicas each."
        )
        return ctx.redirect(NEW, said)
    await ctx.change("create topic", name, ctx.admin.create_topics([topic]))
    return ctx.redirect(f"/topics/{name}", f"Created topic {name}.")


def settings_of(text: str) -> dict[str, str]:
    """`name=value` lines."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise Refused(f"a setting is name=value, not {line[:80]!r}")
        found[name.strip()] = value.strip()
    return found


async def answer(ctx: Context) -> Page[TopicRow]:
    return await ctx.view.topics(query_of(ctx))


_COLUMNS = (
    Column("Topic", sort="name"),
    Column("Partitions", is_number=True, sort="partitions"),
    Column("Replicas", is_number=True, is_optional=True),
    Column("Health"),
    Column("Records", is_number=True, sort="records"),
    Column("Size", is_number=True, sort="size"),
    Column("Written", is_number=True, sort="in", is_optional=True),
    Column("Groups", is_number=True, is_optional=True),
)

SECTION = Section(
    "Topics",
    "/topics",
    routes=(get("/topics", show), get(NEW, show_new), post(NEW, create)),
    questions=(
        Question(
            "/api/topics",
            "Topics, page by page.",
            answer,
            Page[TopicRow],
            (
                Parameter("search", "string", "Words that the name contains."),
                Parameter("sort", "string", "Order.", get_args(TopicSort)),
                Parameter("order", "string", "Direction.", ("asc", "desc")),
                Parameter("offset", "integer", "Rows before the page."),
                Parameter("limit", "integer", "Rows of the page, at most 1,000."),
                Parameter("internal", "boolean", "With internal topics."),
            ),
        ),
    ),
)
