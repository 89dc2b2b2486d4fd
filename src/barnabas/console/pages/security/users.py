"""Users with SCRAM credentials. No broker knows a password, and no page can show one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from barnabas.client.admin.scram_users import ScramUser
from barnabas.console.html.components import Column, card, choice, data_table, empty, field, folded
from barnabas.console.html.elements import Content, Element, button, div, input_, p
from barnabas.console.html.figures import mono, number
from barnabas.console.pages.security import ACCESS_RULES, USERS, security_page
from barnabas.console.web.context import Context, Form, Refused
from barnabas.console.web.section import Question, Section, get, post
from barnabas.security.credentials.scram_credential import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism

ROWS_MAX: Final = 1_000
ITERATIONS: Final = 8_192
_LEAD: Final = "Users that sign in with a name and a password by SCRAM."


@dataclass(frozen=True, slots=True)
class UserRow:
    name: str
    iterations: dict[str, int]
    """Of each mechanism that the user has a credential for."""


async def show(ctx: Context) -> Response:
    users = await ctx.admin.describe_user_scram_credentials()
    listed = card(None, _table(ctx, users))
    return security_page(ctx, "Users", _LEAD, listed, _adding(ctx) if ctx.may_change else None)


def _table(ctx: Context, users: list[ScramUser]) -> Content:
    if not users:
        return empty(p("There are no users with SCRAM credentials."))
    rows = [
        (mono(user.name), mechanism, number(iterations), _removing(ctx, user.name, mechanism))
        for user in users[:ROWS_MAX]
        for mechanism, iterations in sorted(user.iterations.items())
    ]
    more = p(f"The first {ROWS_MAX:,} of {len(users):,} users.") if len(users) > ROWS_MAX else None
    return (data_table("Users", _COLUMNS, rows), more)


def _removing(ctx: Context, name: str, mechanism: str) -> Element | None:
    if not ctx.may_change:
        return None
    made = ctx.form_to(
        f"{USERS}/remove",
        input_(type="hidden", name="user", value=name),
        input_(type="hidden", name="mechanism", value=mechanism),
        p(f"{name} cannot sign in by {mechanism} any more. Open connections stay."),
        button("Remove this credential", class_="danger small"),
    )
    return folded("Remove …", made, class_="folded danger")


def _adding(ctx: Context) -> Element:
    mechanisms = [(each.mechanism_name, each.mechanism_name) for each in ScramMechanism]
    made = ctx.form_to(
        f"{USERS}/add",
        div(
            field("user", "Name", required=True, maxlength=200),
            field("password", "Password", kind="password", required=True, autocomplete="new-password"),
            field("again", "Password, again", kind="password", required=True, autocomplete="new-password"),
            class_="row fields",
        ),
        div(
            choice("mechanism", "Mechanism", mechanisms, value=ScramMechanism.SHA_512.mechanism_name),
            field(
                "iterations",
                "Iterations",
                value=ITERATIONS,
                kind="number",
                min=ITERATIONS_MIN,
                max=ITERATIONS_MAX,
            ),
            class_="row fields",
        ),
        button("Add the user, or change the password", class_="primary", id="add-user"),
    )
    return card("Add a user", made)


# --- changes ---


def _mechanism(form: Form) -> ScramMechanism:
    found = ScramMechanism.named(form.text("mechanism"))
    if found is None:
        raise Refused(f"mechanism is one of {', '.join(each.mechanism_name for each in ScramMechanism)}")
    return found


async def add(ctx: Context) -> Response:
    form = await ctx.form()
    name, password, mechanism = form.text("user"), form.raw("password"), _mechanism(form)
    if not name or not password:
        raise Refused("a user has a name and a password")
    if password != form.raw("again"):
        raise Refused("nothing was done: the two passwords differ")
    iterations = form.number("iterations", ITERATIONS)
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise Refused(f"iterations are {ITERATIONS_MIN:,} to {ITERATIONS_MAX:,}")
    work = ctx.admin.upsert_user_scram_credential(name, password, mechanism, iterations)
    await ctx.change("set password", f"{name} {mechanism.mechanism_name}", work)
    return ctx.redirect(USERS, f"{name} can sign in by {mechanism.mechanism_name} now.")


async def remove(ctx: Context) -> Response:
    form = await ctx.form()
    name, mechanism = form.text("user"), _mechanism(form)
    work = ctx.admin.delete_user_scram_credentials(name, [mechanism])
    await ctx.change("remove credential", f"{name} {mechanism.mechanism_name}", work)
    return ctx.redirect(USERS, f"Removed the {mechanism.mechanism_name} credential of {name}.")


async def answer(ctx: Context) -> list[UserRow]:
    return [UserRow(each.name, each.iterations) for each in await ctx.admin.describe_user_scram_credentials()]


_COLUMNS: Final = (
    Column("User"),
    Column("Mechanism"),
    Column("Iterations", is_number=True, is_optional=True),
    Column(""),
)

SECTION = Section(
    "Users",
    USERS,
    routes=(get(USERS, show), post(f"{USERS}/add", add), post(f"{USERS}/remove", remove)),
    questions=(Question("/api/access/users", "Users with SCRAM credentials.", answer, tuple[UserRow, ...]),),
    is_in_navigation=False,
    within=ACCESS_RULES,
)
