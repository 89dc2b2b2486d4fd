"""Schemas of a registry: subjects, versions, compatibility, references, texts and their differences.

The console asks with its own login to the registry, so every visitor who may enter sees the same schemas.
Changes are in `changes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import urlencode

from starlette.responses import Response

from barnabas.console.html.components import (
    Column,
    card,
    choice,
    crumbs,
    data_table,
    empty,
    facts,
    note,
    pager,
)
from barnabas.console.html.elements import Content, Element, a, button, code, div, form, input_, p, pre, span
from barnabas.console.html.figures import DASH, known, number
from barnabas.console.records.decoding import visible_text
from barnabas.console.schemas.registry import Reference, Registry, RegistryError, Schema
from barnabas.console.schemas.texts import SHOWN_CHARACTERS_MAX, Line, differences, readable
from barnabas.console.view.paging import matches, page_of
from barnabas.console.view.rows import Page
from barnabas.console.web.context import Context, Refused
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Parameter, Question, Section, get

T = TypeVar("T")

LIMIT: Final = 50
NEW: Final = "/schemas/new"
EDIT: Final = "/schemas/edit"
PAGE_S: Final = 6.0
"""A page with several questions to the registry waits for all of them no longer than this."""
USES_SHOWN: Final = 100
LINES_SHOWN: Final = 5_000
_MARKS: Final = {"same": "  ", "added": "+ ", "removed": "- ", "skipped": "… "}


@dataclass(frozen=True, slots=True)
class SubjectRow:
    name: str


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """One version of a subject, with what is known of the subject."""

    subject: str
    version: int
    versions: tuple[int, ...]
    schema_id: int
    type: str
    schema: str
    references: tuple[Reference, ...]
    compatibility: str | None
    referenced_by: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SchemaOfId:
    schema_id: int
    type: str
    schema: str
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class VersionDifference:
    subject: str
    before: int
    after: int
    lines: tuple[tuple[str, str], ...]
    """Of each line: same, added, removed or skipped; and its text."""


def registry_of(ctx: Context) -> Registry:
    if ctx.console.registry is None:
        raise Refused("this console knows no schema registry: start it with --schema-registry URL", 404)
    return ctx.console.registry


async def asked(work: Awaitable[T]) -> T:
    """The answer of the registry, within the time of a page. Refused says why there is none."""
    try:
        async with asyncio.timeout(PAGE_S):
            return await work
    except TimeoutError:
        raise Refused("the schema registry is slow; its answers will be here in a moment", 503) from None
    except RegistryError as error:
        raise Refused(str(error), error.status) from None


# --- subjects ---


async def _subjects(ctx: Context) -> Page[SubjectRow]:
    names = await asked(registry_of(ctx).subjects())
    search = ctx.query.get("search", "").strip()
    found = [SubjectRow(each) for each in names if matches(each, search)]
    offset = ctx.query_number("offset", 0)
    return page_of(found, offset, ctx.query_number("limit", LIMIT, at_least=1, at_most=1_000))


async def show(ctx: Context) -> Response:
    if ctx.console.registry is None:
        told = empty(
            p("This console knows no schema registry."),
            p("Start it with ", code("barnabas console --schema-registry URL"), "."),
        )
        return ctx.page("Schemas", heading("Schemas"), card(None, told))
    registry = registry_of(ctx)
    try:
        page, level = await asyncio.gather(_subjects(ctx), asked(registry.compatibility(None)))
    except Refused as error:
        told = note(str(error), tone="bad")
        if ctx.request.headers.get("hx-request") == "true":
            return ctx.fragment(told)
        return ctx.page("Schemas", heading("Schemas"), card(None, told), status=error.status)
    if ctx.request.headers.get("hx-request") == "true":
        return ctx.fragment(_list(ctx, page))
    search = form(
        div(
            input_(
                type="search",
                name="search",
                value=ctx.query.get("search", ""),
                placeholder="Search subjects  ( / )",
                aria_label="Search subjects",
                hx_get="/schemas",
                hx_trigger="input changed delay:200ms, search",
                hx_target="#subjects",
                hx_replace_url="true",
                maxlength=500,
            ),
            class_="search",
        ),
        button("Search", class_="hidden"),
        method="get",
        action="/schemas",
        class_="row",
    )
    below = ("Registry ", code(registry.shown_url), "; compatibility ", code(level or "unknown"))
    listed = div(_list(ctx, page), id="subjects", aria_live="polite")
    new = a("New schema", href=NEW, class_="button primary") if ctx.may_edit("schemas") else None
    return ctx.page("Schemas", heading("Schemas", new, below=below), card(None, search, listed))


def _list(ctx: Context, page: Page[SubjectRow]) -> Content:
    search = ctx.query.get("search", "").strip()
    if not page.total:
        return empty(
            p("No subject has ", code(search), " in its name." if search else "There are no schemas.")
        )
    rows = [(a(visible_text(each.name), href=subject_path(each.name)),) for each in page.rows]
    offset = ctx.query_number("offset", 0)
    limit = ctx.query_number("limit", LIMIT, at_least=1, at_most=1_000)
    further = pager("/schemas", {"search": search}, offset=offset, limit=limit, total=page.total)
    return (data_table("Subjects", (Column("Subject"),), rows), further)


def subject_path(name: str, version: int | None = None) -> str:
    shown = {"name": name} if version is None else {"name": name, "version": str(version)}
    return f"/schemas/subject?{urlencode(shown)}"


# --- one subject ---


async def version_of(ctx: Context) -> SubjectVersion:
    registry, subject = registry_of(ctx), name_of(ctx)

    async def load() -> SubjectVersion:
        versions = await registry.versions(subject)
        if not versions:
            raise Refused("the subject has no versions", 404)
        version = ctx.query_number("version", versions[-1], at_least=1)
        if version not in versions:
            raise Refused(f"the subject has no version {version}", 404)
        schema, level, uses = await asyncio.gather(
            registry.schema(subject, version),
            registry.compatibility(subject),
            registry.uses(subject, version),
        )
        return SubjectVersion(
            subject,
            version,
            tuple(versions),
            schema.schema_id,
            schema.type,
            schema.text,
            schema.references,
            level,
            tuple(uses),
        )

    return await asked(load())


def name_of(ctx: Context) -> str:
    name = ctx.query.get("name")
    if not name:
        raise Refused("the address names no subject: ?name=…")
    return name


async def show_subject(ctx: Context) -> Response:
    found = await version_of(ctx)
    name = visible_text(found.subject)
    about = facts(
        (
            ("Version", f"{found.version} of {len(found.versions)}"),
            ("Id", a(str(found.schema_id), href=f"/schemas/ids/{found.schema_id}")),
            ("Type", visible_text(found.type)),
            ("Compatibility", known(found.compatibility)),
            ("Referenced by", _uses(found.referenced_by)),
        )
    )
    change = None
    if ctx.may_edit("schemas"):
        change = a("Change", href=f"{EDIT}?{urlencode({'name': found.subject})}", class_="button")
    return ctx.page(
        f"Schema {name}",
        heading(name, change, above=crumbs((("Schemas", "/schemas"),))),
        card(None, about, _choosing(found)),
        card("Schema", await _text(found.schema, found.type)),
        _references(found.references),
    )


def _uses(ids: tuple[int, ...]) -> Content:
    if not ids:
        return DASH
    shown = [(" ", a(f"schema {each}", href=f"/schemas/ids/{each}")) for each in ids[:USES_SHOWN]]
    return (shown, f" and {len(ids) - USES_SHOWN:,} more" if len(ids) > USES_SHOWN else None)


def _choosing(found: SubjectVersion) -> Content:
    numbers = [(str(each), str(each)) for each in reversed(found.versions[-1_000:])]
    name = input_(type="hidden", name="name", value=found.subject)
    another = form(
        name,
        choice("version", "Version", numbers, value=str(found.version)),
        button("Show"),
        method="get",
        action="/schemas/subject",
        class_="row",
    )
    if len(found.versions) < 2:
        return None
    before = max((each for each in found.versions if each < found.version), default=found.versions[0])
    comparing = form(
        name,
        choice("before", "Compare", numbers, value=str(before)),
        choice("after", "with", numbers, value=str(found.version)),
        button("Compare", id="compare"),
        method="get",
        action="/schemas/difference",
        class_="row",
    )
    return (another, comparing)


async def _text(text: str, kind: str) -> Content:
    shown = await asyncio.to_thread(readable, text, kind)
    cut = None
    if len(shown) > SHOWN_CHARACTERS_MAX:
        cut = note("Only the beginning is shown; the API has all of it.", tone="info")
    shown = visible_text(shown[:SHOWN_CHARACTERS_MAX])
    return (pre(shown, class_="record-value", tabindex="0", id="schema-text"), cut)


def _references(references: tuple[Reference, ...]) -> Element | None:
    if not references:
        return None
    rows = [
        (
            code(visible_text(each.name)),
            a(visible_text(each.subject), href=subject_path(each.subject, each.version)),
            number(each.version),
        )
        for each in references
    ]
    columns = (Column("Name"), Column("Subject"), Column("Version", is_number=True))
    return card("References", data_table("References", columns, rows))


async def show_id(ctx: Context) -> Response:
    schema = await asked(registry_of(ctx).schema_by_id(ctx.path_number("id")))
    title = f"Schema {schema.schema_id}"
    return ctx.page(
        title,
        heading(title, above=crumbs((("Schemas", "/schemas"),))),
        card(None, facts((("Id", str(schema.schema_id)), ("Type", visible_text(schema.type))))),
        card("Schema", await _text(schema.text, schema.type)),
        _references(schema.references),
    )


# --- differences ---


async def _difference(ctx: Context) -> tuple[Schema, Schema, list[Line]]:
    registry, subject = registry_of(ctx), name_of(ctx)
    before, after = (ctx.query_number(each, 0, at_least=1, at_most=2**31 - 1) for each in ("before", "after"))
    one, other = await asked(
        asyncio.gather(registry.schema(subject, before), registry.schema(subject, after))
    )

    def compare() -> list[Line]:
        return differences(readable(one.text, one.type), readable(other.text, other.type))

    return one, other, await asyncio.to_thread(compare)


async def show_difference(ctx: Context) -> Response:
    name = name_of(ctx)
    one, other, lines = await _difference(ctx)
    shown = visible_text(name)
    rows = [
        span(_MARKS[each.change] + visible_text(each.text), class_=f"line {each.change}")
        for each in lines[:LINES_SHOWN]
    ]
    told: Content = pre(rows, class_="record-value difference", tabindex="0", id="difference")
    if not any(each.change in ("added", "removed") for each in lines):
        told = empty(p("The two versions have the same text."))
    cut = note(f"The first {LINES_SHOWN:,} lines.", tone="info") if len(lines) > LINES_SHOWN else None
    links = div(
        a(f"Version {one.version}", href=subject_path(name, one.version), class_="button ghost"),
        a(f"Version {other.version}", href=subject_path(name, other.version), class_="button ghost"),
        class_="actions",
    )
    return ctx.page(
        f"Differences of {shown}",
        heading(
            f"Version {one.version} to {other.version}",
            links,
            above=crumbs((("Schemas", "/schemas"), (shown, subject_path(name)))),
        ),
        card(None, told, cut),
    )


# --- JSON ---


async def answer_subjects(ctx: Context) -> Page[SubjectRow]:
    return await _subjects(ctx)


async def answer_subject(ctx: Context) -> SubjectVersion:
    return await version_of(ctx)


async def answer_id(ctx: Context) -> SchemaOfId:
    found = await asked(registry_of(ctx).schema_by_id(ctx.path_number("id")))
    return SchemaOfId(found.schema_id, found.type, found.text, found.references)


async def answer_difference(ctx: Context) -> VersionDifference:
    one, other, lines = await _difference(ctx)
    pairs = tuple((each.change, each.text) for each in lines)
    return VersionDifference(name_of(ctx), one.version, other.version, pairs)


_NAME = Parameter("name", "string", "The subject.")
SECTION = Section(
    "Schemas",
    "/schemas",
    routes=(
        get("/schemas", show),
        get("/schemas/subject", show_subject),
        get("/schemas/difference", show_difference),
        get("/schemas/ids/{id:int}", show_id),
    ),
    questions=(
        Question(
            "/api/schemas",
            "Subjects of the schema registry, page by page.",
            answer_subjects,
            Page[SubjectRow],
            (
                Parameter("search", "string", "Words that the name contains, in any case."),
                Parameter("offset", "integer", "Subjects to skip."),
                Parameter("limit", "integer", "Subjects, at most 1,000."),
            ),
        ),
        Question(
            "/api/schemas/subject",
            "One version of a subject; the newest without a version.",
            answer_subject,
            SubjectVersion,
            (_NAME, Parameter("version", "integer", "The version.")),
        ),
        Question(
            "/api/schemas/difference",
            "Lines in which two versions of a subject differ.",
            answer_difference,
            VersionDifference,
            (
                _NAME,
                Parameter("before", "integer", "The first version."),
                Parameter("after", "integer", "The second version."),
            ),
        ),
        Question("/api/schemas/ids/{id:int}", "The schema of an id.", answer_id, SchemaOfId),
    ),
)
