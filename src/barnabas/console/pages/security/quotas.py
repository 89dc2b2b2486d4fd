"""Quotas of users, client ids and addresses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from barnabas.client.admin.client_quotas import Entity, EntityQuotas
from barnabas.console.html.components import Column, card, choice, data_table, empty, field, folded, note
from barnabas.console.html.elements import Content, Element, button, div, input_, p
from barnabas.console.html.figures import mono, number, rate
from barnabas.console.pages.security import ACCESS_RULES, QUOTAS, security_page
from barnabas.console.web.context import Context, Form, Refused
from barnabas.console.web.section import Question, Section, get, post
from barnabas.quota.keys import (
    ADDRESS_KEYS,
    CLIENT_KEYS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    TYPE_IN_REQUESTS,
)

ROWS_MAX: Final = 1_000
DEFAULT: Final = "<default>"
"""Kafka's tools show the entities without quotas of their own so."""
_LEAD: Final = "A client that goes beyond its quota is slowed down, and never refused."
_NAMES: Final = {"user": "user", "client-id": "client id", "ip": "address"}


@dataclass(frozen=True, slots=True)
class QuotaRow:
    entity: dict[str, str | None]
    """Name by type (user, client-id, ip); null is the default of those without a quota of their own."""
    quotas: dict[str, float]


async def _quotas(ctx: Context) -> list[EntityQuotas]:
    found = await ctx.admin.describe_client_quotas({})
    return sorted(found, key=lambda each: sorted((kind, name or "") for kind, name in each.entity.items()))


async def show(ctx: Context) -> Response:
    found = await _quotas(ctx)
    listed = card(None, _table(ctx, found))
    return security_page(ctx, "Quotas", _LEAD, listed, _setting(ctx) if ctx.may_change else None)


def _table(ctx: Context, found: list[EntityQuotas]) -> Content:
    if not found:
        return empty(p("There are no quotas: every client may use what the brokers have."))
    rows = [
        (_shown_entity(each.entity), key, _shown_value(key, value), _removing(ctx, each.entity, key))
        for each in found[:ROWS_MAX]
        for key, value in sorted(each.quotas.items())
    ]
    more = note(f"The first {ROWS_MAX:,} of {len(found):,} entities.") if len(found) > ROWS_MAX else None
    return (data_table("Quotas", _COLUMNS, rows), more)


def _shown_entity(entity: Entity) -> Content:
    parts = [(_NAMES.get(kind, kind), " ", mono(name or DEFAULT)) for kind, name in sorted(entity.items())]
    return [(", " if at else "", part) for at, part in enumerate(reversed(parts))]


def _shown_value(key: str, value: float) -> str:
    if key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE):
        return rate(value, "B")
    if key == REQUEST_PERCENTAGE:
        return f"{number(value)} %"
    return rate(value, " partitions" if key == CONTROLLER_MUTATION_RATE else " connections")


def _removing(ctx: Context, entity: Entity, key: str) -> Element | None:
    if not ctx.may_change:
        return None
    made = ctx.form_to(
        f"{QUOTAS}/remove",
        [input_(type="hidden", name=kind, value=name or DEFAULT) for kind, name in entity.items()],
        input_(type="hidden", name="key", value=key),
        button("Remove this quota", class_="danger small"),
    )
    return folded("Remove …", made, class_="folded danger")


def _setting(ctx: Context) -> Element:
    hint = f"{DEFAULT} for all without a quota of their own"
    made = ctx.form_to(
        f"{QUOTAS}/set",
        div(
            field("user", "User", hint=hint, maxlength=249),
            field("client-id", "Client id", hint="alone, or with a user", maxlength=249),
            field("ip", "Address", hint="alone", maxlength=64),
            class_="row fields",
        ),
        div(
            choice("key", "Quota", [(each, each) for each in (*CLIENT_KEYS, *ADDRESS_KEYS)]),
            field(
                "value", "Value", required=True, hint="bytes a second, percent of a core, or changes a second"
            ),
            class_="row fields",
        ),
        button("Set the quota", class_="primary", id="set-quota"),
    )
    return card("Set a quota", made)


# --- changes ---


def _entity(form: Form) -> dict[str, str | None]:
    given = {kind: form.text(kind) for kind in TYPE_IN_REQUESTS}
    entity = {kind: None if name == DEFAULT else name for kind, name in given.items() if name}
    if not entity:
        raise Refused("name a user, a client id or an address")
    return entity


def _key(form: Form) -> str:
    key = form.text("key")
    if key not in (*CLIENT_KEYS, *ADDRESS_KEYS):
        raise Refused(f"quota is one of {', '.join((*CLIENT_KEYS, *ADDRESS_KEYS))}")
    return key


async def _alter(ctx: Context, entity: Entity, quotas: Mapping[str, float | None], said: str) -> Response:
    await ctx.change("alter quotas", said, ctx.admin.alter_client_quotas(entity, quotas))
    return ctx.redirect(QUOTAS, f"{said}.")


async def set_quota(ctx: Context) -> Response:
    form = await ctx.form()
    entity, key, text = _entity(form), _key(form), form.text("value")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise Refused(f"value is a number from 0 on, not {text[:40]!r}")
    return await _alter(ctx, entity, {key: value}, f"{key} of {_said(entity)} is {value:,.15g} now")


async def remove(ctx: Context) -> Response:
    form = await ctx.form()
    entity, key = _entity(form), _key(form)
    return await _alter(ctx, entity, {key: None}, f"{_said(entity)} has no {key} of its own now")


def _said(entity: Entity) -> str:
    return ", ".join(f"{_NAMES[kind]} {name or DEFAULT}" for kind, name in entity.items())


async def answer(ctx: Context) -> list[QuotaRow]:
    return [QuotaRow(dict(each.entity), dict(each.quotas)) for each in await _quotas(ctx)]


_COLUMNS: Final = (Column("Of"), Column("Quota"), Column("Value", is_number=True), Column(""))

SECTION = Section(
    "Quotas",
    QUOTAS,
    routes=(get(QUOTAS, show), post(f"{QUOTAS}/set", set_quota), post(f"{QUOTAS}/remove", remove)),
    questions=(
        Question(
            "/api/access/quotas", "Quotas of users, client ids and addresses.", answer, tuple[QuotaRow, ...]
        ),
    ),
    is_in_navigation=False,
    within=ACCESS_RULES,
)
