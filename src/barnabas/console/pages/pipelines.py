"""Pipelines, over the REST interface of their service: state, lag, errors; pause, resume, stop, restart."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import Response

from barnabas.console.html.components import Column, badge, card, crumbs, data_table, empty, facts, note
from barnabas.console.html.elements import Content, Element, a, button, code, div, p, pre
from barnabas.console.html.figures import DASH, known, moment, number
from barnabas.console.web.context import Context, Refused
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Question, Section, get, post
from barnabas.security.http.token import token_for

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 8 * 1024 * 1024
_TONES = {"RUNNING": "good", "FAILED": "bad", "PAUSED": "warn", "RESTARTING": "warn"}
STEPS = {
    "pause": ("PUT", "/pause", "Paused"),
    "resume": ("PUT", "/resume", "Resumed"),
    "stop": ("PUT", "/stop", "Stopped"),
    "restart": ("POST", "/restart?includeTasks=true", "Restarted"),
}


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    """A redirection could lead the token elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirection())


async def ask(ctx: Context, method: str, path: str) -> Any:
    """Ask the pipeline service. Refused says what it answered."""
    url = ctx.console.settings.pipelines_url
    if url is None:
        raise Refused("this console knows no pipeline service: start it with --pipelines URL", 404)
    return await asyncio.to_thread(_ask, url, method, path)


def _ask(url: str, method: str, path: str) -> Any:
    base = (url if url.startswith(("http://", "https://")) else f"http://{url}").rstrip("/")
    token = token_for(base)
    headers = {"accept": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(base + path, method=method, headers=headers)  # noqa: S310 - the operator's
    try:
        with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
            body = answer.read(ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:
        raise Refused(f"the pipeline service: {_message(error)}", error.code) from None
    except OSError as error:
        raise Refused(f"the pipeline service at {base} does not answer: {error}", 503) from None
    try:
        return json.loads(body) if body else None
    except ValueError:
        raise Refused("the pipeline service answered with something that is not JSON", 502) from None


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(ANSWER_BYTES_MAX))["message"])
    except (ValueError, KeyError, TypeError):
        return f"answer {error.code}"


async def show(ctx: Context) -> Response:
    if ctx.console.settings.pipelines_url is None:
        told = empty(
            p("This console knows no pipeline service."),
            p(
                "Start one with ",
                code("barnabas console --pipelines URL"),
                ", the address that ",
                code("barnabas pipeline serve"),
                " prints.",
            ),
        )
        return ctx.page("Pipelines", heading("Pipelines"), card(None, told))
    found: dict[str, Any] = await ask(ctx, "GET", "/connectors?expand=status")
    rows = [_row(name, each["status"]) for name, each in sorted(found.items())]
    table = data_table("Pipelines", _COLUMNS, rows) if rows else empty(p("There are no pipelines."))
    return ctx.page("Pipelines", heading("Pipelines"), card(None, table))


def _row(name: str, status: dict[str, Any]) -> tuple[Content, ...]:
    about = status.get("pipeline") or {}
    return (
        a(name, href=_path(name)),
        _state(about.get("state") or status["connector"]["state"]),
        known(about.get("delivery")),
        number(about.get("records")),
        number(about.get("lag")),
        number(about.get("dead_letters")),
        number(about.get("restarts")),
    )


def _state(state: str) -> Element:
    return badge(state.lower(), _TONES.get(state, "plain"))  # type: ignore[arg-type]


def _path(name: str) -> str:
    return f"/pipeline?{urlencode({'name': name})}"


def _name(ctx: Context) -> str:
    name = ctx.query.get("name")
    if not name:
        raise Refused("the address names no pipeline: ?name=…")
    return name


async def show_one(ctx: Context) -> Response:
    name = _name(ctx)
    path = f"/connectors/{quote(name, safe='')}"
    status, config = await asyncio.gather(
        ask(ctx, "GET", f"{path}/status"), ask(ctx, "GET", f"{path}/config")
    )
    about = status.get("pipeline") or {}
    state = about.get("state") or status["connector"]["state"]
    progress = about.get("progress") or {}
    actions: Content = None
    if ctx.may_change:
        actions = [
            ctx.form_to(
                f"/pipeline/{step}?{urlencode({'name': name})}",
                button(step.capitalize(), id=f"{step}-pipeline"),
            )
            for step in STEPS
        ]
    error = about.get("last_error")
    settings = [(code(key), code(str(value))) for key, value in sorted(config.items())]
    return ctx.page(
        f"Pipeline {name}",
        heading(name, above=crumbs((("Pipelines", "/pipelines"),))),
        card(
            None,
            facts(
                (
                    ("State", _state(state)),
                    ("Delivery", known(about.get("delivery"))),
                    ("Since (UTC)", moment(about.get("since_ms"))),
                    ("Records", number(about.get("records"))),
                    ("Lag", number(about.get("lag"))),
                    ("Dead letters", number(about.get("dead_letters"))),
                    ("Restarts", number(about.get("restarts"))),
                    ("Failures", number(about.get("failures"))),
                )
            ),
            div(actions, class_="actions") if actions else None,
        ),
        card("Last error", note(str(error), tone="bad")) if error else None,
        card("Last report", pre(json.dumps(progress, indent=2, ensure_ascii=False), tabindex="0"))
        if progress
        else None,
        card(
            "Spec", data_table("Spec", (Column("Setting"), Column("Value")), settings) if settings else DASH
        ),
    )


async def steer(ctx: Context) -> Response:
    await ctx.form()
    name, step = _name(ctx), ctx.path_text("step")
    if step not in STEPS:
        raise Refused(f"a pipeline can {', '.join(STEPS)}", 404)
    method, path, done = STEPS[step]
    await ctx.change(f"{step} pipeline", name, ask(ctx, method, f"/connectors/{quote(name, safe='')}{path}"))
    return ctx.redirect(_path(name), f"{done} {name}.")


async def answer(ctx: Context) -> dict[str, Any]:
    found: dict[str, Any] = await ask(ctx, "GET", "/connectors?expand=status")
    return found


_COLUMNS = (
    Column("Pipeline"),
    Column("State"),
    Column("Delivery", is_optional=True),
    Column("Records", is_number=True),
    Column("Lag", is_number=True),
    Column("Dead letters", is_number=True),
    Column("Restarts", is_number=True, is_optional=True),
)

SECTION = Section(
    "Pipelines",
    "/pipelines",
    routes=(get("/pipelines", show), get("/pipeline", show_one), post("/pipeline/{step}", steer)),
    questions=(Question("/api/pipelines", "Pipelines and their states.", answer, dict[str, Any]),),
)
