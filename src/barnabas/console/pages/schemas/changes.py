"""Changes of schemas: a new version, checked first; compatibility; deletion.

They are made by the console's own login to the registry, so only a console with `--edit schemas` makes them.
The registry knows no visitor; the audit line names them.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, TypeVar

from starlette.responses import Response

from barnabas.console.formats.bounds import SCHEMA_CHARACTERS_MAX
from barnabas.console.html.components import card, choice, crumbs, field, folded, note, text_field
from barnabas.console.html.elements import Content, Element, a, button, div, input_, p
from barnabas.console.pages.schemas.subjects import EDIT, NEW, asked, registry_of, subject_path, version_of
from barnabas.console.records.decoding import visible_text
from barnabas.console.schemas.registry import Reference
from barnabas.console.web.context import Context, Form, Refused
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Section, get, post

T = TypeVar("T")

TYPES: Final = ("AVRO", "PROTOBUF", "JSON")
LEVELS: Final = (
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
)
MISFITS_SHOWN: Final = 20
SUBJECT_CHARACTERS_MAX: Final = 500


async def show_new(ctx: Context) -> Response:
    registry_of(ctx)
    _editable(ctx)
    lead = "A subject is mostly the name of a topic with -key or -value."
    return ctx.page(
        "New schema",
        heading("New schema", above=crumbs((("Schemas", "/schemas"),)), below=lead),
        card(None, _schema_form(ctx, "", "AVRO", "")),
    )


async def show_edit(ctx: Context) -> Response:
    _editable(ctx)
    found = await version_of(ctx)
    name = visible_text(found.subject)
    path = subject_path(found.subject)
    levels = [(each, each.lower().replace("_", " ")) for each in LEVELS]
    level = ctx.form_to(
        "/schemas/compatibility",
        input_(type="hidden", name="subject", value=found.subject),
        div(
            choice("level", "A new version must fit", levels, value=found.compatibility or ""),
            button("Set the compatibility", class_="primary"),
            class_="row",
        ),
    )
    return ctx.page(
        f"Change {name}",
        heading(f"Change {name}", above=crumbs((("Schemas", "/schemas"), (name, path)))),
        card("A new version", _schema_form(ctx, found.subject, found.type, found.schema, found.references)),
        card("Compatibility", level),
        card("Delete", _delete_form(ctx, found.subject, found.version, len(found.versions))),
    )


def _editable(ctx: Context) -> None:
    if not ctx.may_edit("schemas"):
        raise Refused("this console changes no schemas: start it with --edit schemas", 403)


def _schema_form(
    ctx: Context, subject: str, kind: str, text: str, references: tuple[Reference, ...] = ()
) -> Element:
    kept = [f"{each.name} {each.subject} {each.version}" for each in references]
    return ctx.form_to(
        NEW,
        div(
            field("subject", "Subject", value=subject, required=True, maxlength=SUBJECT_CHARACTERS_MAX)
            if not subject
            else input_(type="hidden", name="subject", value=subject),
            choice("type", "Type", [(each, each.capitalize()) for each in TYPES], value=kind),
            class_="row",
        ),
        text_field("schema", "Schema", value=text, rows=16, required=True),
        text_field(
            "references",
            "References",
            value="\n".join(kept),
            rows=2,
            hint="Other schemas that this one uses: name, subject and version on each line.",
        ),
        div(
            button("Register", class_="primary", id="register"),
            button("Check only", name="check", value="true", id="check"),
            a("Cancel", href=subject_path(subject) if subject else "/schemas", class_="button ghost"),
            class_="actions",
        ),
    )


def _delete_form(ctx: Context, subject: str, version: int, versions: int) -> Element:
    wanted = [(str(version), f"version {version}"), ("", f"all {versions} versions")]
    return folded(
        "Delete …",
        ctx.form_to(
            "/schemas/delete",
            input_(type="hidden", name="subject", value=subject),
            p("Records that were written with it cannot be decoded by registries that forget its id."),
            choice("version", "What", wanted),
            field("confirm", "Type the name of the subject", required=True, autocomplete="off"),
            button("Delete", class_="danger", id="delete-schema"),
        ),
        class_="folded danger",
    )


async def register(ctx: Context) -> Response:
    form = await ctx.edit_form("schemas")
    registry, subject = registry_of(ctx), _subject(form)
    kind, text, references = form.text("type", "AVRO").upper(), form.raw("schema"), _references(form)
    if kind not in TYPES:
        raise Refused(f"a schema is one of {', '.join(TYPES)}")
    if not text.strip() or len(text) > SCHEMA_CHARACTERS_MAX:
        raise Refused(f"a schema has 1 to {SCHEMA_CHARACTERS_MAX:,} characters")
    if form.flag("check"):
        misfits = await asked(registry.misfits(subject, kind, text, references))
        return _checked(ctx, subject, kind, text, references, misfits)
    schema_id = await _changed(
        ctx, "register schema", subject, registry.register(subject, kind, text, references)
    )
    return ctx.redirect(subject_path(subject), f"Registered {visible_text(subject)} with id {schema_id}.")


def _checked(
    ctx: Context,
    subject: str,
    kind: str,
    text: str,
    references: list[Reference],
    misfits: list[str] | None,
) -> Response:
    """The form again, with what the registry says of the schema."""
    said: Content = note(f"The registry accepts this schema for {visible_text(subject)}.", tone="good")
    if misfits is not None:
        said = [
            note(f"The schema does not fit the newest version of {visible_text(subject)}.", tone="bad"),
            [note(visible_text(each[:1_000]), tone="warn") for each in misfits[:MISFITS_SHOWN]],
        ]
    return ctx.page(
        "Check of a schema",
        heading("Check of a schema", above=crumbs((("Schemas", "/schemas"),))),
        card(None, said, _schema_form(ctx, subject, kind, text, tuple(references))),
    )


async def set_compatibility(ctx: Context) -> Response:
    form = await ctx.edit_form("schemas")
    subject, level = _subject(form), form.text("level")
    if level not in LEVELS:
        raise Refused(f"compatibility is one of {', '.join(LEVELS)}")
    work = registry_of(ctx).set_compatibility(subject, level)
    await _changed(ctx, "set compatibility", f"{subject} {level}", work)
    return ctx.redirect(subject_path(subject), f"Compatibility of {visible_text(subject)} is {level} now.")


async def delete(ctx: Context) -> Response:
    form = await ctx.edit_form("schemas")
    subject = _subject(form)
    if form.text("confirm") != subject:
        raise Refused(f"nothing was done: the name typed is not {visible_text(subject)}")
    version = form.number("version", at_least=1) if form.text("version") else None
    what = subject if version is None else f"{subject} version {version}"
    await _changed(ctx, "delete schema", what, registry_of(ctx).delete(subject, version))
    return ctx.redirect("/schemas", f"Deleted {visible_text(what)}.")


async def _changed(ctx: Context, operation: str, resource: str, work: Awaitable[T]) -> T:
    return await ctx.change(operation, resource, asked(work))


def _subject(form: Form) -> str:
    found = form.text("subject")
    if not found or len(found) > SUBJECT_CHARACTERS_MAX:
        raise Refused(f"a subject has 1 to {SUBJECT_CHARACTERS_MAX} characters")
    return found


def _references(form: Form) -> list[Reference]:
    found = []
    for line in filter(None, map(str.strip, form.raw("references").splitlines())):
        parts = line.split()
        if len(parts) != 3 or not parts[2].isdecimal() or len(parts[2]) > 9:
            raise Refused(f"a reference is a name, a subject and a version, not {line[:80]!r}")
        found.append(Reference(parts[0], parts[1], int(parts[2])))
    return found


SECTION = Section(
    "Changes of schemas",
    "/schemas",
    routes=(
        get(NEW, show_new),
        post(NEW, register),
        get(EDIT, show_edit),
        post("/schemas/compatibility", set_compatibility),
        post("/schemas/delete", delete),
    ),
    is_in_navigation=False,
)
