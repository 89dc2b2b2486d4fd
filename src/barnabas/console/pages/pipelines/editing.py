"""Pipelines and connectors made, configured and deleted, on a console with `--edit pipelines`."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.responses import Response

from barnabas.console.html.components import card, crumbs, field, folded, note, text_field
from barnabas.console.html.elements import Content, Element, a, button, div, p
from barnabas.console.pages.pipelines.asking import ask, path_of
from barnabas.console.pages.pipelines.configuration import editable, parsed
from barnabas.console.pages.pipelines.status import page_path
from barnabas.console.web.context import Context, Form, Refused
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Section, get, post

NEW: Final = "/new-pipeline"
NAME_CHARACTERS_MAX: Final = 200
PROBLEMS_SHOWN: Final = 20
EXAMPLE: Final = {
    "connector.class": "Pipeline",
    "pipeline.spec": {
        "source": {"type": "topic", "topics": ["orders"], "schema": "id INT, amount DOUBLE"},
        "transforms": [{"filter": "amount > 100"}],
        "sink": {"type": "topic", "topic": "large-orders"},
    },
}


def editing_path(name: str) -> str:
    return f"/pipeline/configuration?{urlencode({'name': name})}"


async def show_new(ctx: Context) -> Response:
    _editable(ctx)
    lead = "A pipeline of Barnabas, or a connector of a Connect worker."
    form = ctx.form_to(
        NEW,
        field("name", "Name", required=True, maxlength=NAME_CHARACTERS_MAX, autofocus=True),
        _config_field(json.dumps(EXAMPLE, indent=2)),
        _buttons("Create", "/pipelines"),
    )
    above = crumbs((("Pipelines", "/pipelines"),))
    return ctx.page("New pipeline", heading("New pipeline", above=above, below=lead), card(None, form))


async def show(ctx: Context) -> Response:
    _editable(ctx)
    name = _name(ctx)
    config: dict[str, Any] = await ask(ctx, "GET", path_of(name, "/config"))
    above = crumbs((("Pipelines", "/pipelines"), (name, page_path(name))))
    delete = folded(
        "Delete this pipeline …",
        ctx.form_to(
            f"/pipeline/delete?{urlencode({'name': name})}",
            p("It stops, and its configuration is deleted. What it has written stays."),
            field("confirm", "Type the name of the pipeline", required=True, autocomplete="off"),
            button("Delete the pipeline", class_="danger", id="delete-pipeline"),
        ),
        class_="folded danger",
    )
    return ctx.page(
        f"Configure {name}",
        heading(f"Configure {name}", above=above),
        card("Configuration", _config_form(ctx, name, editable(config))),
        card("Delete", delete),
    )


def _config_form(ctx: Context, name: str, text: str) -> Element:
    return ctx.form_to(editing_path(name), _config_field(text), _buttons("Save", page_path(name)))


def _config_field(text: str) -> Element:
    return text_field(
        "config", "Configuration", value=text, rows=20, required=True, hint="JSON. (hidden) keeps a secret."
    )


def _buttons(done: str, back: str) -> Element:
    return div(
        button(done, class_="primary", id="save-pipeline"),
        button("Check only", name="check", value="true", id="check-pipeline"),
        a("Cancel", href=back, class_="button ghost"),
        class_="actions",
    )


async def create(ctx: Context) -> Response:
    form = await ctx.edit_form("pipelines")
    name = form.text("name")
    if not name or len(name) > NAME_CHARACTERS_MAX:
        raise Refused(f"a pipeline has a name of 1 to {NAME_CHARACTERS_MAX} characters")
    config = parsed(form.raw("config"), {})
    if form.flag("check"):
        again = ctx.form_to(
            NEW,
            field("name", "Name", value=name, required=True, maxlength=NAME_CHARACTERS_MAX),
            _config_field(form.raw("config")),
            _buttons("Create", "/pipelines"),
        )
        return await _checked(ctx, name, config, again)
    await ctx.change(
        "create pipeline", name, ask(ctx, "POST", "/connectors", {"name": name, "config": config})
    )
    return ctx.redirect(page_path(name), f"Created {name}.")


async def configure(ctx: Context) -> Response:
    form = await ctx.edit_form("pipelines")
    name = _name(ctx)
    known: dict[str, Any] = await ask(ctx, "GET", path_of(name, "/config"))
    config = parsed(form.raw("config"), known)
    if form.flag("check"):
        return await _checked(ctx, name, config, _config_form(ctx, name, form.raw("config")))
    await ctx.change("configure pipeline", name, ask(ctx, "PUT", path_of(name, "/config"), config))
    return ctx.redirect(page_path(name), f"Configured {name}.")


async def delete(ctx: Context) -> Response:
    form: Form = await ctx.edit_form("pipelines")
    name = _name(ctx)
    if form.text("confirm") != name:
        raise Refused(f"nothing was done: the name typed is not {name}")
    await ctx.change("delete pipeline", name, ask(ctx, "DELETE", path_of(name)))
    return ctx.redirect("/pipelines", f"Deleted {name}.")


async def _checked(ctx: Context, name: str, config: dict[str, Any], form: Element) -> Response:
    """The form again, with what the service says of the configuration."""
    plugin = str(config.get("connector.class") or "")
    if not plugin:
        raise Refused("the configuration names no connector.class")
    path = f"/connector-plugins/{quote(plugin.rpartition('.')[2], safe='')}/config/validate"
    found: dict[str, Any] = await ask(ctx, "PUT", path, {"name": name, **config})
    problems = [
        f"{value.get('name')}: {error}"
        for value in (each.get("value") or {} for each in found.get("configs") or ())
        for error in value.get("errors") or ()
    ]
    said: Content = note("The service accepts this configuration.", tone="good")
    if problems or found.get("error_count"):
        said = [note(each[:2_000], tone="bad") for each in problems[:PROBLEMS_SHOWN]] or note(
            "The service refuses this configuration.", tone="bad"
        )
    above = crumbs((("Pipelines", "/pipelines"),))
    return ctx.page(f"Check of {name}", heading(f"Check of {name}", above=above), card(None, said, form))


def _editable(ctx: Context) -> None:
    if not ctx.may_edit("pipelines"):
        raise Refused("this console changes no pipelines: start it with --edit pipelines", 403)


def _name(ctx: Context) -> str:
    name = ctx.query.get("name")
    if not name:
        raise Refused("the address names no pipeline: ?name=…")
    return name


SECTION = Section(
    "Configuration",
    NEW,
    routes=(
        get(NEW, show_new),
        post(NEW, create),
        get("/pipeline/configuration", show),
        post("/pipeline/configuration", configure),
        post("/pipeline/delete", delete),
    ),
    is_in_navigation=False,
    within="/pipelines",
)
