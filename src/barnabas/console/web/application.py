"""Starlette application of the console: routes of all sections, guarded.

Every answer has the security headers. The policy of a page runs only scripts that carry the page's nonce. The
page loads from this address alone, and no other site can frame it.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from barnabas.client.admin.calls.per_resource import SomeFailed
from barnabas.client.core.client_errors import ClientClosed
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.console.html.components import card, empty, field, note
from barnabas.console.html.elements import Content, a, button, p
from barnabas.console.view.interface import NotOffered
from barnabas.console.web.api import as_json, encoded
from barnabas.console.web.assets import by_path
from barnabas.console.web.connections import FORBIDDEN, reason_of
from barnabas.console.web.console import Console
from barnabas.console.web.context import FAILURES, Context, Refused
from barnabas.console.web.layout import heading
from barnabas.console.web.proofs import NotProven, proof_of
from barnabas.console.web.section import Answer, Handler, Section
from barnabas.console.web.sessions import Session
from barnabas.core.errors import (
    GroupIdNotFound,
    KafkaError,
    ResourceNotFound,
    SaslAuthenticationFailed,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from barnabas.core.reporting.error_isolation import complain

SHOWN_CHARACTERS_MAX: Final = 200
"""Of a path in the log."""
POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script';"
    " trusted-types htmx"
)
HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
FOREVER: Final = "public, max-age=31536000, immutable"
_NOT_FOUND = (UnknownTopicOrPartition, GroupIdNotFound, TransactionalIdNotFound, ResourceNotFound)


def application(console: Console, sections: Sequence[Section]) -> Starlette:
    guard = _Guard(console)
    register_url_convertor("int", _PathNumber())
    routes = [
        Route("/static/{digest}/{name}", asset, methods=["GET"]),
        Route("/sign-in", guard.open_to_all(sign_in_page), methods=["GET"]),
        Route("/sign-in", guard.open_to_all(sign_in), methods=["POST"]),
        Route("/sign-out", guard.page(sign_out), methods=["POST"]),
        Route("/api/openapi.json", guard.json(_described), methods=["GET"]),
    ]
    for section in sections:
        routes += [
            Route(each.path, guard.page(each.handle), methods=[each.method]) for each in section.routes
        ]
        routes += [Route(each.path, guard.json(each.answer), methods=["GET"]) for each in section.questions]
    return Starlette(routes=routes, exception_handlers={HTTPException: guard.not_served})


class _PathNumber(IntegerConvertor):
    """`{offset:int}`. A longer number is not an address: the requests of the client have no room for it."""

    regex = "[0-9]{1,18}"


async def _described(ctx: Context) -> object:
    return ctx.console.description


async def asset(request: Request) -> Response:
    found = by_path().get(request.url.path)
    if found is None:
        return PlainTextResponse("no such file", 404)
    return Response(found.body, media_type=found.media_type, headers={"cache-control": FOREVER, **HEADERS})


class _Guard:
    """Gives each request its session, and turns failures into pages."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def page(self, handle: Handler) -> Callable[[Request], Awaitable[Response]]:
        return self._with_context(handle, needs_session=True)

    def open_to_all(self, handle: Handler) -> Callable[[Request], Awaitable[Response]]:
        return self._with_context(handle, needs_session=False)

    def json(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                ctx, is_new = await self._context(request)
            except NotProven as error:
                return self._not_proven(request, error)
            await self._console.until_open()
            if not ctx.may_enter:
                waits = self._waits_for_broker(ctx)
                refused = {"message": self._no_broker if waits else "sign in first"}
                return self._finished(ctx, JSONResponse(refused, 503 if waits else 401), is_new=is_new)
            response: Response
            try:
                found = await encoded(as_json(await answer(ctx)))
                response = Response(found, media_type="application/json")
            except SaslAuthenticationFailed as error:
                self._console.sessions.end(ctx.session)
                response = JSONResponse({"message": reason_of(error), "error": type(error).__name__}, 401)
            except FAILURES as error:
                body = {"message": reason_of(error), "error": type(error).__name__}
                response = JSONResponse(body, status_of(error))
            except Exception as error:  # noqa: BLE001 - one answer fails, the console goes on
                complain("the answer to", request.url.path[:SHOWN_CHARACTERS_MAX], error)
                response = JSONResponse({"message": "the log of the console says why"}, 500)
            return self._finished(ctx, response, is_new=is_new)

        return respond

    async def not_served(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        try:
            ctx, is_new = await self._context(request)
        except NotProven as refusal:
            return self._not_proven(request, refusal)
        if request.url.path.startswith("/api/"):
            response: Response = JSONResponse({"message": error.detail}, error.status_code)
        elif ctx.may_enter:
            response = _failure(ctx, "There is no such page", error.status_code)
        else:
            response = PlainTextResponse(error.detail, error.status_code)
        return self._finished(ctx, response, is_new=is_new)

    def _with_context(
        self, handle: Handler, *, needs_session: bool
    ) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                ctx, is_new = await self._context(request)
            except NotProven as error:
                return self._not_proven(request, error)
            if needs_session:
                await self._console.until_open()
            if needs_session and not ctx.may_enter:
                return self._finished(ctx, self._turned_away(ctx), is_new=is_new)
            try:
                response = await handle(ctx)
            except SaslAuthenticationFailed as error:
                # The login was good when the session began: its user or its token is gone.
                self._console.sessions.end(ctx.session)
                response = _failure(ctx, f"The brokers ended this login: {reason_of(error)}", 401)
            except FAILURES as error:
                response = _failure(ctx, reason_of(error), status_of(error))
            except Exception as error:  # noqa: BLE001 - one page fails, the console goes on
                complain("the page", request.url.path[:SHOWN_CHARACTERS_MAX], error)
                response = _failure(ctx, "The page failed; the log of the console says why.", 500)
            return self._finished(ctx, response, is_new=is_new)

        return respond

    async def _context(self, request: Request) -> tuple[Context, bool]:
        proof = proof_of(request, self._console.connections)
        if proof is not None:
            return Context(request, self._console, await self._console.proven.session_of(proof)), False
        found = self._console.sessions.find(request.cookies.get(self._console.settings.cookie))
        session = found or self._console.sessions.begin()
        return Context(request, self._console, session), found is None

    def _not_proven(self, request: Request, error: NotProven) -> Response:
        """Refusal of a visitor whose certificate or token the brokers do not accept. It sets no cookie."""
        ctx = Context(request, self._console, self._console.sessions.stranger())
        if request.url.path.startswith("/api/"):
            response: Response = JSONResponse({"message": str(error)}, error.status)
        else:
            told = card(None, p(str(error), class_="note bad"))
            response = ctx.page("Not signed in", heading("Not signed in"), told, status=error.status)
        if error.status == 401 and self._console.connections.takes_bearers:
            response.headers["www-authenticate"] = 'Bearer realm="barnabas", error="invalid_token"'
        return self._finished(ctx, response, is_new=False)

    def _waits_for_broker(self, ctx: Context) -> bool:
        """Whether a visitor who may not enter yet has nothing left to do but to wait."""
        is_admitted = self._console.settings.token is None or ctx.session.is_admitted
        return is_admitted and not self._console.connections.needs_login

    @property
    def _no_broker(self) -> str:
        return f"No broker answers at {self._console.connections.bootstrap} yet"

    def _turned_away(self, ctx: Context) -> Response:
        if not self._waits_for_broker(ctx):
            if ctx.request.method == "GET" and ctx.request.url.path != "/":
                ctx.session.wanted_path = ctx.request.url.path + (
                    f"?{ctx.request.url.query}" if ctx.request.url.query else ""
                )
            return ctx.redirect("/sign-in")
        waiting = empty(p(f"{self._no_broker}. The console tries again every second."))
        return ctx.page("Waiting for a broker", heading("Waiting for a broker"), waiting, status=503)

    def _finished(self, ctx: Context, response: Response, *, is_new: bool) -> Response:
        if is_new:
            set_cookie(response, ctx)
        return guarded(response, ctx.nonce)


def guarded(response: Response, nonce: str) -> Response:
    """Add the security headers of every page."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["content-security-policy"] = POLICY.format(nonce=nonce)
    response.headers.setdefault("cache-control", "no-store")
    return response


def set_cookie(response: Response, ctx: Context) -> None:
    settings = ctx.console.settings
    response.set_cookie(
        settings.cookie, ctx.session.id, httponly=True, samesite="strict", secure=settings.is_tls, path="/"
    )


def status_of(error: Exception) -> int:
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, NotOffered):
        return 501
    if isinstance(error, _NOT_FOUND):
        return 404
    if isinstance(error, FORBIDDEN):
        return 403
    if isinstance(error, ClientClosed | ClusterUnreachable) or (
        isinstance(error, KafkaError) and error.retriable
    ):
        return 503
    return 409 if isinstance(error, KafkaError | SomeFailed) else 500


def _failure(ctx: Context, message: str, status: int) -> Response:
    back = ctx.request.headers.get("referer", "")
    path = "/" + back.split("/", 3)[3] if back.count("/") >= 3 else "/"
    path = path.removeprefix(ctx.base) if path.startswith(f"{ctx.base}/") else "/"
    return ctx.page(
        "That did not work",
        heading("That did not work"),
        card(None, p(message, class_="note bad"), p(a("Back", href=_safe_path(path)))),
        status=status,
    )


def _safe_path(path: str) -> str:
    return (
        path
        if not path.startswith(("//", "/\\")) and path.isascii() and path.isprintable() and " " not in path
        else "/"
    )


# --- signing in ---


async def sign_in_page(ctx: Context) -> Response:
    settings = ctx.console.settings
    given = ctx.query.get("token")
    if given is not None and settings.token is not None:
        return _admit(ctx, given)
    if ctx.console.connections.needs_login:
        return ctx.redirect("/") if ctx.session.proof else _login_page(ctx)
    if settings.token is None:
        return ctx.redirect("/")
    form = ctx.form_to(
        "/sign-in",
        field("token", "Token", kind="password", required=True, autofocus=True),
        button("Sign in", class_="primary"),
    )
    lead = "The console printed its token when it started."
    return ctx.page("Sign in", heading("Sign in", below=lead), card(None, form))


def _login_page(ctx: Context) -> Response:
    connections = ctx.console.connections
    cards: list[Content] = []
    if connections.password_mechanism is not None:
        by_password = ctx.form_to(
            "/sign-in",
            field("user", "User", autocomplete="username", required=True, autofocus=True),
            field("password", "Password", kind="password", autocomplete="current-password", required=True),
            button("Sign in", class_="primary"),
        )
        cards.append(card(None, by_password))
    if connections.takes_bearers:
        by_token = ctx.form_to(
            "/sign-in",
            field("bearer", "Bearer token", kind="password", autocomplete="off", required=True),
            button("Sign in with the token", class_="primary"),
        )
        cards.append(card("With a token of your identity provider", by_token))
    if connections.takes_certificates:
        told = "A browser with a client certificate of this cluster needs no sign-in. This one shows none."
        cards.append(note(told, tone="info"))
    lead = "Sign in as a user of the cluster. Every change is made as this user."
    return ctx.page("Sign in", heading("Sign in", below=lead), *cards)


async def sign_in(ctx: Context) -> Response:
    form = await ctx.fields()
    connections = ctx.console.connections
    if ctx.session.proof:
        return ctx.redirect("/")
    if ctx.console.settings.token is not None and not connections.needs_login:
        return _admit(ctx, form.text("token"))
    if not connections.needs_login:
        raise Refused("this console asks for no sign-in")
    bearer = form.text("bearer")
    try:
        if bearer and connections.takes_bearers:
            connection = await connections.log_in_by_bearer(bearer)
        else:
            connection = await connections.log_in(form.text("user"), form.raw("password"))
    except SaslAuthenticationFailed:
        told = "The brokers refused this token." if bearer else "The brokers refused this name and password."
        return ctx.redirect("/sign-in", told, is_failure=True)
    return _entered(ctx, lambda session: setattr(session, "connection", connection))


def _admit(ctx: Context, token: str) -> Response:
    known = ctx.console.settings.token or ""
    if not secrets.compare_digest(token.encode(), known.encode()):
        return ctx.redirect("/sign-in", "This is not the console's token.", is_failure=True)
    return _entered(ctx, lambda session: setattr(session, "is_admitted", True))


def _entered(ctx: Context, enter: Callable[[Session], None]) -> Response:
    """Begin another session for the signed-in user: an id that was known before is worth nothing."""
    path = _safe_path(ctx.session.wanted_path)
    ctx.console.sessions.end(ctx.session)
    ctx.session = ctx.console.sessions.begin()
    enter(ctx.session)
    response = ctx.redirect(path)
    set_cookie(response, ctx)
    return response


async def sign_out(ctx: Context) -> Response:
    await ctx.fields()
    if ctx.session.proof:
        raise Refused("the browser shows a certificate or a token with each request: there is no sign-out")
    ctx.console.sessions.end(ctx.session)
    ctx.session = ctx.console.sessions.begin()
    response = ctx.redirect("/sign-in", "Signed out.")
    set_cookie(response, ctx)
    return response
