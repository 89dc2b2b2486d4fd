"""Security of the cluster: access rules, users, quotas and delegation tokens."""

from __future__ import annotations

from starlette.responses import Response

from barnabas.console.html.components import tabs
from barnabas.console.html.elements import Content
from barnabas.console.web.context import Context
from barnabas.console.web.layout import heading

ACCESS_RULES, USERS, QUOTAS, TOKENS = "/access", "/access/users", "/access/quotas", "/access/tokens"
VIEWS = (("Access rules", ACCESS_RULES), ("Users", USERS), ("Quotas", QUOTAS), ("Tokens", TOKENS))


def security_page(ctx: Context, view: str, lead: str, *content: Content) -> Response:
    return ctx.page(view, heading("Security", below=lead), tabs(VIEWS, view), *content)
