"""Delegation tokens: logins that a user hands to a program, for a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from barnabas.client.admin.delegation_tokens import BY_THE_BROKER, Token
from barnabas.console.html.components import Column, card, data_table, empty, facts, field, folded, note
from barnabas.console.html.elements import Content, Element, a, button, div, input_, p
from barnabas.console.html.figures import moment, mono
from barnabas.console.pages.security import ACCESS_RULES, TOKENS, security_page
from barnabas.console.web.context import Context, Refused
from barnabas.console.web.section import Question, Section, get, post
from barnabas.core.errors import DelegationTokenAuthDisabled, DelegationTokenRequestNotAllowed, InvalidRequest
from barnabas.security.identity.principal import KafkaPrincipal

RENEWERS_MAX: Final = 20
ROWS_MAX: Final = 1_000
HOURS_MAX: Final = 24 * 365 * 10
HOUR_MS: Final = 3_600_000
_LEAD: Final = "A token is a login of its own, for a program that acts as a user."


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token without its secret."""

    token_id: str
    owner: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    @classmethod
    def of(cls, token: Token) -> TokenRow:
        renewers = tuple(map(str, token.renewers))
        return cls(
            token.token_id, str(token.owner), renewers, token.issued_ms, token.expires_ms, token.max_ms
        )


async def show(ctx: Context) -> Response:
    try:
        found = await ctx.admin.describe_delegation_tokens()
    except (DelegationTokenAuthDisabled, DelegationTokenRequestNotAllowed) as error:
        return security_page(ctx, "Tokens", _LEAD, card(None, empty(p(f"No tokens here: {error}."))))
    listed = card(None, _table(ctx, found))
    return security_page(ctx, "Tokens", _LEAD, listed, _creating(ctx) if ctx.may_change else None)


def _table(ctx: Context, found: list[Token]) -> Content:
    if not found:
        return empty(p("There are no tokens that this user may see."))
    rows = [
        (
            mono(token.token_id),
            mono(token.owner),
            [(", " if at else "", mono(each)) for at, each in enumerate(token.renewers)],
            moment(token.expires_ms),
            moment(token.max_ms),
            _managing(ctx, token) if ctx.may_change else None,
        )
        for token in found[:ROWS_MAX]
    ]
    more = note(f"The first {ROWS_MAX:,} of {len(found):,} tokens.") if len(found) > ROWS_MAX else None
    return (data_table("Tokens", _COLUMNS, rows), more)


def _managing(ctx: Context, token: Token) -> Content:
    named = input_(type="hidden", name="token_id", value=token.token_id)
    return (
        ctx.form_to(f"{TOKENS}/renew", named, button("Renew", class_="ghost small")),
        folded(
            "Expire …",
            ctx.form_to(
                f"{TOKENS}/expire",
                named,
                p("Programs cannot sign in with it any more."),
                button("Expire this token now", class_="danger small"),
            ),
            class_="folded danger",
        ),
    )


def _creating(ctx: Context) -> Element:
    made = ctx.form_to(
        f"{TOKENS}/create",
        div(
            field("owner", "Owner", hint="such as User:alice; empty for yourself"),
            field("renewers", "Renewers", hint="principals, with commas between them"),
            field(
                "hours", "Hours", kind="number", min=1, max=HOURS_MAX, hint="empty for the brokers' maximum"
            ),
            class_="row fields",
        ),
        button("Create a token", class_="primary", id="create-token"),
    )
    return card("Create a token", made)


# --- changes ---


async def create(ctx: Context) -> Response:
    """Create a token and show its secret, on this page alone."""
    form = await ctx.form()
    named = [each.strip() for each in form.text("renewers").split(",") if each.strip()]
    if len(named) > RENEWERS_MAX:
        raise Refused(f"a token has at most {RENEWERS_MAX} renewers")
    owner = _principal(form.text("owner")) if form.text("owner") else None
    hours = form.number("hours", 0, at_least=0)
    if hours > HOURS_MAX:
        raise Refused(f"a token lives at most {HOURS_MAX:,} hours")
    work = ctx.admin.create_delegation_token(
        owner=owner,
        renewers=[_principal(each) for each in named],
        lifetime_ms=hours * HOUR_MS if hours else BY_THE_BROKER,
    )
    token = await ctx.change("create token", str(owner or ctx.connection.shown_user), work)
    shown = facts(
        [
            ("User name", mono(token.token_id)),
            ("Password", mono(token.password)),
            ("Owner", mono(token.owner)),
            ("Expires", moment(token.expires_ms)),
        ]
    )
    told = "Programs sign in with SCRAM and tokenauth=true. Keep the password now: it is not shown again."
    back = a("Back to the tokens", href=TOKENS, class_="button ghost")
    return security_page(ctx, "Tokens", _LEAD, card("A new token", note(told, tone="warn"), shown, back))


def _principal(text: str) -> KafkaPrincipal:
    try:
        return KafkaPrincipal.parse(text)
    except InvalidRequest as error:
        raise Refused(str(error)) from None


async def renew(ctx: Context) -> Response:
    token_id = (await ctx.form()).text("token_id")
    await ctx.change("renew token", token_id, ctx.admin.renew_delegation_token(token_id))
    return ctx.redirect(TOKENS, f"Renewed token {token_id}.")


async def expire(ctx: Context) -> Response:
    token_id = (await ctx.form()).text("token_id")
    await ctx.change("expire token", token_id, ctx.admin.expire_delegation_token(token_id))
    return ctx.redirect(TOKENS, f"Token {token_id} has expired.")


async def answer(ctx: Context) -> list[TokenRow]:
    return [TokenRow.of(each) for each in await ctx.admin.describe_delegation_tokens()]


_COLUMNS: Final = (
    Column("Token"),
    Column("Owner"),
    Column("Renewers", is_optional=True),
    Column("Expires"),
    Column("At the latest", is_optional=True),
    Column(""),
)

SECTION = Section(
    "Tokens",
    TOKENS,
    routes=(
        get(TOKENS, show),
        post(f"{TOKENS}/create", create),
        post(f"{TOKENS}/renew", renew),
        post(f"{TOKENS}/expire", expire),
    ),
    questions=(
        Question("/api/access/tokens", "Tokens, without their secrets.", answer, tuple[TokenRow, ...]),
    ),
    is_in_navigation=False,
    within=ACCESS_RULES,
)
