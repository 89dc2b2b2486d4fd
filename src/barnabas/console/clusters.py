"""Console of several clusters: the pages of each are below `/clusters/NAME`, and `/` lists the clusters.

Each cluster has a console of its own, with its sessions, its sign-in and its bounds. The clusters share the
process and the address. A session of one cluster is none of another: each has a cookie of its own, and the
form token of one is refused by the others.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from barnabas.console.html.components import Column, badge, card, data_table
from barnabas.console.html.elements import Content, OutsidePath, a, document
from barnabas.console.html.figures import number
from barnabas.console.view.rows import Overview
from barnabas.console.web.application import asset, guarded
from barnabas.console.web.console import Console
from barnabas.console.web.context import FAILURES, NONCE_BYTES, Context
from barnabas.console.web.layout import Frame, heading, page
from barnabas.console.web.navigation import CLUSTERS, base_of
from barnabas.console.web.proofs import proof_of
from barnabas.console.web.sessions import Session

ANSWER_S: Final = 2.0
"""A cluster that takes longer is listed without its figures."""
_ALL: Final = "All clusters"
_COLUMNS: Final = (
    Column("Cluster"),
    Column("State"),
    Column("Brokers", is_number=True),
    Column("Topics", is_number=True),
    Column("Partitions", is_number=True, is_optional=True),
    Column("Under-replicated", is_number=True, is_optional=True),
    Column("Offline", is_number=True, is_optional=True),
    Column("Groups", is_number=True, is_optional=True),
    Column("Records behind", is_number=True, is_optional=True),
)


class Clusters:
    """Application that gives each request to the console of its cluster."""

    def __init__(self, consoles: Sequence[tuple[Console, ASGIApp]]) -> None:
        self._consoles = {console.settings.name: console for console, _ in consoles}
        self._applications = {console.settings.name: application for console, application in consoles}
        self._index = Starlette(
            routes=[
                Route("/", self._list, methods=["GET"]),
                Route("/static/{digest}/{name}", asset, methods=["GET"]),
            ],
            exception_handlers={HTTPException: _not_served},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        application, path = self._chosen(scope["path"])
        await application({**scope, "path": path, "raw_path": None}, receive, send)

    def _chosen(self, path: str) -> tuple[ASGIApp, str]:
        """Application of a path, and the path that it sees."""
        name, slash, rest = path.removeprefix(f"{CLUSTERS}/").partition("/")
        if not path.startswith(f"{CLUSTERS}/") or name not in self._applications:
            return self._index, path
        if not slash:
            return RedirectResponse(f"{base_of(name)}/", 307), path
        return self._applications[name], f"/{rest}"

    async def _list(self, request: Request) -> Response:
        consoles = self._consoles.values()
        rows = await asyncio.gather(*(_row(request, each) for each in consoles))
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        frame = Frame(
            title="Overview",
            path="/",
            cluster=_ALL,
            user=None,
            is_read_only=False,
            notices=(),
            places=(),
            sign_out=None,
            nonce=nonce,
            clusters=next(iter(consoles)).settings.clusters,
        )
        table = card(None, data_table("Clusters", _COLUMNS, rows))
        return guarded(HTMLResponse(document(page(frame, heading("Clusters"), table), nonce)), nonce)


async def _row(request: Request, console: Console) -> tuple[Content, ...]:
    """A cluster, with the figures that this visitor may see."""
    link = a(console.settings.name, href=OutsidePath(f"{base_of(console.settings.name)}/"))
    ctx = Context(request, console, _session(request, console))
    state: Content = badge("no broker answers", "bad")
    if ctx.may_enter:
        try:
            async with asyncio.timeout(ANSWER_S):
                return link, _state(console), *_figures(await ctx.connection.live_overview.get())
        except (*FAILURES, TimeoutError):
            pass
    elif console.settings.token is not None or console.connections.needs_login:
        state = badge("sign in first")
    return link, state, *[None] * (len(_COLUMNS) - 2)


def _session(request: Request, console: Console) -> Session:
    """The visitor's session of this cluster. Listing clusters begins none."""
    proof = proof_of(request, console.connections)
    if proof is not None:
        found = console.sessions.proven(proof.id)
    else:
        found = console.sessions.find(request.cookies.get(console.settings.cookie))
    return found or console.sessions.stranger()


def _state(console: Console) -> Content:
    return badge("read-only", "warn") if console.settings.is_read_only else badge("connected", "good")


def _figures(found: Overview) -> tuple[Content, ...]:
    at_risk = badge(number(found.under_replicated), "warn") if found.under_replicated else "0"
    offline = badge(number(found.offline), "bad") if found.offline else "0"
    counts = (number(len(found.brokers)), number(found.topics), number(found.partitions))
    return *counts, at_risk, offline, number(found.groups), number(found.lag_records)


async def _not_served(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return guarded(PlainTextResponse(error.detail, error.status_code), "")
