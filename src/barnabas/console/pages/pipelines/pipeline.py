"""One pipeline: graph, state and figures, live; errors, dead letters, spec; start, pause, stop, restart."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import Response

from barnabas.console.html.components import (
    Column,
    badge,
    card,
    crumbs,
    data_table,
    facts,
    folded,
    live_sign,
    note,
)
from barnabas.console.html.elements import Content, Element, a, button, code, div, element, pre, render, span
from barnabas.console.html.figures import DASH, duration, known, moment, number, rate
from barnabas.console.pages.pipelines.asking import ask, path_of
from barnabas.console.pages.pipelines.configuration import is_secret
from barnabas.console.pages.pipelines.dead_letters import PREFIX, Letters, letters_table, newest_letters
from barnabas.console.pages.pipelines.editing import editing_path
from barnabas.console.pages.pipelines.graph import Graph, graph_chart, graph_table
from barnabas.console.pages.pipelines.status import STEPS, Status, page_path
from barnabas.console.web.context import FAILURES, Context, Refused
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Parameter, Question, Section, get, post
from barnabas.console.web.streams import event, stream

REFRESH_S: Final = 2.0
_CHART_NUMBER: Final = re.compile(r"chart-\d+")


def _name(ctx: Context) -> str:
    name = ctx.query.get("name")
    if not name:
        raise Refused("the address names no pipeline: ?name=…")
    return name


async def _status(ctx: Context, name: str) -> Status:
    return Status(name, await ask(ctx, "GET", path_of(name, "/status")))


async def _graph(ctx: Context, name: str, config: Mapping[str, str], status: Status) -> Graph | None:
    """None for a configuration that is not valid in this release: its error says so."""
    if status.about:
        try:
            return Graph.of_service(await ask(ctx, "GET", path_of(name, "/graph")))
        except Refused as error:
            if error.status not in (404, 409):
                raise
            return None
    found: Mapping[str, Any] = await ask(ctx, "GET", path_of(name, "/topics"))
    topics = (found.get(name) or {}).get("topics") or ()
    return Graph.of_connector(config, str(status.document.get("type")), sorted(map(str, topics)))


async def show(ctx: Context) -> Response:
    name = _name(ctx)
    status, config = await asyncio.gather(_status(ctx, name), ask(ctx, "GET", path_of(name, "/config")))
    graph = await _graph(ctx, name, config, status)
    letters: Content = None
    if graph is not None and graph.letters_topic is not None:
        letters = await _letters(ctx, name, graph)
    live = div(id="pipeline-live", class_="hidden", attributes={"hx-sse:connect": _live_path(name)})
    edit = None
    if ctx.may_edit("pipelines"):
        edit = a("Configure", href=editing_path(name), class_="button small")
    actions = (live_sign(), div(_actions(ctx, status), id="pipeline-actions"))
    return ctx.page(
        f"Pipeline {name}",
        heading(name, actions, above=crumbs((("Pipelines", "/pipelines"),))),
        live,
        div(_figures(status, graph), id="pipeline", class_="stack"),
        letters,
        card("Stages", graph_table(graph)) if graph is not None else None,
        card("Spec", _spec(config), actions=edit),
    )


def _live_path(name: str) -> str:
    return f"/pipeline/live?{urlencode({'name': name})}"


async def show_live(ctx: Context) -> Response:
    """Figures and buttons, each when it has changed."""
    name = _name(ctx)
    status, config = await asyncio.gather(_status(ctx, name), ask(ctx, "GET", path_of(name, "/config")))
    graph = await _graph(ctx, name, config, status)

    async def events() -> AsyncIterator[bytes]:
        shown: dict[str, str] = {}
        while True:
            await asyncio.sleep(REFRESH_S)
            if not ctx.may_enter:
                return  # the user has signed out
            try:
                found = await _status(ctx, name)
            except Refused as error:
                parts: dict[str, Content] = {"pipeline": note(str(error), tone="bad")}
            else:
                parts = {"pipeline": _figures(found, graph), "pipeline-actions": _actions(ctx, found)}
            fresh = {id_: part for id_, part in parts.items() if shown.get(id_) != _comparable(part)}
            if fresh:
                shown |= {id_: _comparable(part) for id_, part in fresh.items()}
                yield event([_swapped(id_, part) for id_, part in fresh.items()], ctx.base)

    return stream(events())


def _comparable(part: Content) -> str:
    """The rendered part without the numbers of its charts, which differ each time."""
    return _CHART_NUMBER.sub("chart", render(part))


def _swapped(id_: str, part: Content) -> Element:
    return element("hx-partial", part, attributes={"hx-target": f"#{id_}", "hx-swap": "innerHTML"})


def _actions(ctx: Context, status: Status) -> Content:
    if not ctx.may_change:
        return None
    return div(
        [
            ctx.form_to(
                f"/pipeline/{step}?{urlencode({'name': status.name})}",
                button(
                    STEPS[step].button, id=f"{step}-pipeline", class_="primary" if step == "resume" else None
                ),
            )
            for step in status.steps
        ],
        class_="actions",
    )


def _figures(status: Status, graph: Graph | None) -> Content:
    about, progress = status.about, status.progress
    rows: list[tuple[Content, Content]] = [("State", status.badge())]
    if about:
        rows += [
            ("Since (UTC)", moment(about.get("since_ms") or None)),
            ("Delivery", known(about.get("delivery"))),
            ("Records", number(about.get("records"))),
            ("Rate, last minute", rate(about.get("records_per_second"), " rec")),
            ("Lag", number(about.get("lag"))),
            ("Dead letters", number(about.get("dead_letters"))),
            ("Restarts", number(about.get("restarts"))),
        ]
    if progress:
        batch = f"{number(progress.get('records'))} records in {duration(progress.get('batch_ms'))}"
        rows.append((f"Micro-batch {number(progress.get('batch_id'))}", batch))
    if graph is not None and graph.group_id is not None:
        path = f"/group?{urlencode({'id': graph.group_id})}"
        rows.append(("Group, with lag in time", a(graph.group_id, href=path)))
    chart = card("Graph", graph_chart(graph, status)) if graph is not None and graph.stages else None
    return (chart, card(None, facts(rows)), _errors(status))


def _errors(status: Status) -> Content:
    past = status.about.get("errors") or ()
    rows = [
        (moment(each.get("last_ms")), number(each.get("times")), span(str(each.get("message"))))
        for each in past
    ]
    current = note(status.last_error, tone="bad") if status.last_error else None
    table = data_table("Last errors", _ERROR_COLUMNS, rows, id_="errors") if rows else None
    if current is None and table is None:
        return None
    return card("Last errors", current, table)


async def _letters(ctx: Context, name: str, graph: Graph) -> Element:
    topic = graph.letters_topic
    assert topic is not None
    if graph.are_letters_foreign:
        told = note(f"Topic {topic} is in the cluster of the sink, which this console does not ask.")
        return card("Dead letters", told)
    query = urlencode({"filter": f"header.{PREFIX}connector.name == {json.dumps(name)}"})
    every = a("All of them", href=f"/topics/{topic}/messages?{query}", class_="button")
    table = await letters_table(ctx, topic, name, graph.own_topics)
    return card("Dead letters", table, actions=every)


def _spec(config: Mapping[str, str]) -> Content:
    text = config.get("pipeline.spec")
    rest = [
        (code(key), badge("secret") if is_secret(key, value) else _value(str(value)))
        for key, value in sorted(config.items())
        if key != "pipeline.spec"
    ]
    spec = folded("The whole spec", pre(_pretty(text), tabindex="0")) if text else None
    table = data_table("Settings", (Column("Setting"), Column("Value")), rest) if rest else None
    return (spec, table) if spec or table else DASH


def _value(text: str) -> Element:
    return code(text, class_="record-value")


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


async def steer(ctx: Context) -> Response:
    await ctx.form()
    name, step = _name(ctx), ctx.path_text("step")
    if step not in STEPS:
        raise Refused(f"a pipeline can {', '.join(STEPS)}", 404)
    taken = STEPS[step]
    await ctx.change(f"{step} pipeline", name, ask(ctx, taken.method, path_of(name, taken.path)))
    return ctx.redirect(page_path(name), f"{taken.done} {name}.")


async def answer(ctx: Context) -> dict[str, Any]:
    name = _name(ctx)
    found: dict[str, Any] = await ask(ctx, "GET", path_of(name, "/status"))
    try:
        graph: Any = await ask(ctx, "GET", path_of(name, "/graph"))
    except FAILURES:
        graph = None
    return {"status": found, "graph": graph}


async def answer_letters(ctx: Context) -> Letters:
    name = _name(ctx)
    status, config = await asyncio.gather(_status(ctx, name), ask(ctx, "GET", path_of(name, "/config")))
    graph = await _graph(ctx, name, config, status)
    if graph is None or graph.letters_topic is None or graph.are_letters_foreign:
        raise Refused(f"pipeline {name} has no dead letters in this cluster", 404)
    return await newest_letters(ctx, graph.letters_topic, name)


_ERROR_COLUMNS = (
    Column("Last seen (UTC)"),
    Column("In a row", is_number=True, is_optional=True),
    Column("Error"),
)
_NAME = (Parameter("name", "string", "Name of the pipeline."),)

SECTION = Section(
    "Pipeline",
    "/pipeline",
    routes=(
        get("/pipeline", show),
        get("/pipeline/live", show_live),
        post("/pipeline/{step}", steer),
    ),
    questions=(
        Question("/api/pipeline", "State and graph of one pipeline.", answer, dict[str, Any], _NAME),
        Question(
            "/api/pipeline/dead-letters",
            "The newest dead letters of a pipeline.",
            answer_letters,
            Letters,
            _NAME,
        ),
    ),
    is_in_navigation=False,
    within="/pipelines",
)
