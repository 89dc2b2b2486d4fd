"""A change that is confirmed by a second click: the first opens what the second does."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.console.html.components import folded
from barnabas.console.html.elements import Content, Element, button, input_
from barnabas.console.web.context import Context


def confirmed_form(
    ctx: Context, action: str, asked: str, done: str, fields: Mapping[str, str], *content: Content
) -> Element | None:
    """Nothing on a read-only console."""
    if not ctx.may_change:
        return None
    hidden = [input_(type="hidden", name=name, value=value) for name, value in fields.items()]
    form = ctx.form_to(action, hidden, *content, button(done, class_="danger small"))
    return folded(asked, form, class_="folded danger")
