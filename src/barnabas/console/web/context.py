"""Context of one request: what a page's handler gets, and what it answers with.

    async def delete(ctx: Context) -> Response:
        form = await ctx.form()
        await ctx.change("delete topic", name, ctx.admin.delete_topics([name]))
        return ctx.redirect("/topics", f"Deleted topic {name}.")

`form` is the only way to a form's fields, and it refuses a request without the session's form token and a
console that is read-only. So no handler can forget either.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.calls.per_resource import SomeFailed
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.client_errors import ClientClosed
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.console.html.elements import Attribute, Content, Element, document, form, input_, render
from barnabas.console.records.masking import Mask
from barnabas.console.schemas.decoders import PAGE_DECODES_MS, Part, PartDecoder
from barnabas.console.view.interface import ClusterView, NotOffered
from barnabas.console.web.audit import note_change
from barnabas.console.web.connections import Connection, reason_of
from barnabas.console.web.layout import Frame, page
from barnabas.console.web.sessions import Session
from barnabas.core.errors import KafkaError
from barnabas.network.http.forms import form_fields

if TYPE_CHECKING:
    from barnabas.console.web.console import Console

T = TypeVar("T")

FORM_TOKEN: Final = "form_token"  # noqa: S105 - the name of a field
INLINE_FORM_BYTES_MAX: Final = 64 * 1024
FIELD_CHARACTERS_MAX: Final = 1_100_000
NONCE_BYTES: Final = 16


class Refused(Exception):
    """The console does not do that; the message is for the user."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Form:
    """Fields of a form that was sent with the right token."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self.fields = fields

    def text(self, name: str, default: str = "") -> str:
        return next((value.strip() for each, value in self.fields if each == name), default)

    def raw(self, name: str) -> str:
        """Text with its spaces, and with the line ends that the user typed."""
        return next((value.replace("\r\n", "\n") for each, value in self.fields if each == name), "")

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.fields if each == name]

    def flag(self, name: str) -> bool:
        return self.text(name) == "true"

    def number(self, name: str, default: int | None = None, *, at_least: int | None = None) -> int:
        found = whole_number(self.text(name), name, default)
        if at_least is not None and found < at_least:
            raise Refused(f"{name} is at least {at_least}")
        return found


@dataclass
class Context:
    request: Request
    console: Console
    session: Session
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(NONCE_BYTES))

    # --- what the request asks ---

    @property
    def query(self) -> QueryParams:
        return self.request.query_params

    @property
    def base(self) -> str:
        """What goes before each path of a page."""
        return self.console.settings.base

    def path_text(self, name: str) -> str:
        return str(self.request.path_params[name])

    def path_number(self, name: str) -> int:
        return int(self.request.path_params[name])

    def query_number(self, name: str, default: int, *, at_least: int = 0, at_most: int = 2**63 - 1) -> int:
        return min(max(whole_number(self.query.get(name, ""), name, default), at_least), at_most)

    # --- the signed-in user's clients ---

    @property
    def connection(self) -> Connection:
        found = self.session.connection or self.console.shared
        if found is None:  # a stream whose user has signed out
            raise Refused("sign in first", 401)
        return found

    @property
    def acts_for_visitor(self) -> bool:
        """Whether the visitor signed in, and sees what that user may see."""
        return self.session.connection is not None

    @property
    def may_enter(self) -> bool:
        """Whether the session has a connection: its user's own, or the shared one that it was admitted to."""
        connection = self.session.connection
        if connection is not None:
            return not connection.is_over(self.console.clock.monotonic_ms())
        is_admitted = self.console.settings.token is None or self.session.is_admitted
        return is_admitted and self.console.shared is not None

    def is_signed_in_as(self, connection: Connection) -> bool:
        """Whether a stream may go on: its user has not signed out."""
        return self.may_enter and connection in (self.session.connection, self.console.shared)

    @property
    def admin(self) -> Admin:
        return self.connection.admin

    @property
    def cluster(self) -> ClusterClient:
        return self.connection.cluster

    @property
    def view(self) -> ClusterView:
        return self.connection.view

    def decoder(self, topic: str, part: Part, decodes_ms: float = PAGE_DECODES_MS) -> PartDecoder:
        """Decoder of keys or values of a topic, for one page: it waits for a registry no longer than that."""
        message = self.console.given.message(self.session.id, (topic, part))
        return PartDecoder(self.console.schemas, message, self.console.clock, decodes_ms)

    def mask(self, topic: str) -> Mask | None:
        """Fields of the topic's records that are hidden from every visitor."""
        return self.console.settings.masks.of(topic)

    @property
    def host(self) -> str:
        return self.request.client.host if self.request.client else ""

    @property
    def may_change(self) -> bool:
        return not self.console.settings.is_read_only

    def may_edit(self, what: str) -> bool:
        """Whether visitors may change schemas or pipelines, which is done by the console's own access."""
        return self.may_change and what in self.console.settings.edited

    async def edit_form(self, what: str) -> Form:
        """Fields of a form that changes schemas or pipelines."""
        form = await self.form()
        if what not in self.console.settings.edited:
            raise Refused(f"this console changes no {what}: start it with --edit {what}", 403)
        return form

    # --- changes ---

    def form_to(self, action: str, *content: Content, **attributes: Attribute) -> Element:
        """A form that `form` accepts."""
        token = input_(type="hidden", name=FORM_TOKEN, value=self.session.form_token)
        return form(token, *content, method="post", action=action, **attributes)

    async def form(self) -> Form:
        fields = await self.fields()
        if self.console.settings.is_read_only:
            raise Refused("this console is read-only", 403)
        return fields

    async def fields(self) -> Form:
        """Fields of a form that changes nothing in the cluster, such as the sign-in."""
        given = self.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given != "application/x-www-form-urlencoded":
            raise Refused("a form is sent as application/x-www-form-urlencoded", 415)
        if self.request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Refused("forms of other sites are refused", 403)
        try:
            body = await self.request.body()
            large = len(body) > INLINE_FORM_BYTES_MAX  # other pages go on
            fields = await asyncio.to_thread(form_fields, body) if large else form_fields(body)
        except ValueError:
            raise Refused("the form cannot be read") from None
        if any(len(value) > FIELD_CHARACTERS_MAX for _, value in fields):
            raise Refused(f"a field has at most {FIELD_CHARACTERS_MAX:,} characters", 413)
        form = Form(fields)
        if not secrets.compare_digest(form.text(FORM_TOKEN).encode(), self.session.form_token.encode()):
            raise Refused("this form is out of date: load its page and send it again", 403)
        return form

    async def change(self, operation: str, resource: str, work: Awaitable[T]) -> T:
        """Make a change and write its audit line, whether it succeeds or not."""
        user, cluster = self.connection.shown_user, self.console.settings.name
        try:
            result = await work
        except (*FAILURES, ValueError) as error:
            note_change(user, self.host, operation, resource, reason_of(error), cluster)
            raise
        note_change(user, self.host, operation, resource, None, cluster)
        return result

    # --- answers ---

    def page(self, title: str, *content: Content, status: int = 200) -> Response:
        frame = Frame(
            title=title,
            path=self.request.url.path,
            cluster=self.console.cluster_name,
            user=None if self.session.connection is None else self.connection.shown_user,
            is_read_only=self.console.settings.is_read_only,
            notices=self.session.take_notices(),
            places=self.console.places,
            sign_out=None if self.session.connection is None or self.session.proof else self._signing_out,
            nonce=self.nonce,
            clusters=self.console.settings.clusters,
        )
        return HTMLResponse(document(page(frame, *content), self.nonce, self.base), status)

    @property
    def _signing_out(self) -> Element:
        return self.form_to("/sign-out", class_="sign-out")

    def fragment(self, content: Content) -> Response:
        """Part of a page, for htmx."""
        return HTMLResponse(render(content, self.nonce, self.base))

    def redirect(self, path: str, notice: str | None = None, *, is_failure: bool = False) -> Response:
        if notice is not None:
            self.session.notify(notice, "bad" if is_failure else "good")
        return RedirectResponse(self.base + path, 303)


def whole_number(shown: str, name: str, default: int | None = None) -> int:
    """A number of a form or an address; `default` where there is none."""
    if not shown:
        if default is None:
            raise Refused(f"{name} is missing")
        return default
    try:
        if len(shown) > 20:
            raise ValueError
        return int(shown)
    except ValueError:
        raise Refused(f"{name} is a whole number, not {shown[:40]!r}") from None


FAILURES: Final = (KafkaError, SomeFailed, ClientClosed, ClusterUnreachable, NotOffered, Refused)
"""Errors that a handler may raise; the page shows the message. `ClientClosed`: the user has signed out."""
