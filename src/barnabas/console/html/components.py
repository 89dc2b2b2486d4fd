"""Parts that pages are made of: cards, tables, badges, facts, fields, pagers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

from barnabas.console.html.elements import (
    Attribute,
    Content,
    Element,
    a,
    caption,
    dd,
    details,
    div,
    dl,
    dt,
    h2,
    header,
    input_,
    label,
    nav,
    option,
    p,
    section,
    select,
    small,
    span,
    summary,
    table,
    tbody,
    td,
    textarea,
    th,
    thead,
    tr,
)

Tone = Literal["plain", "good", "warn", "bad", "info"]


def badge(shown: Content, tone: Tone = "plain", *, title: str | None = None) -> Element:
    """A state, by word and colour."""
    return span(shown, class_=f"badge {tone}", title=title)


def live_sign() -> Element:
    """Whether the figures of the page arrive. The page's script keeps it true."""
    return span("connecting", class_="live off")


def card(
    heading: str | None,
    *content: Content,
    actions: Content = None,
    id_: str | None = None,
    wide: bool = False,
) -> Element:
    top = None
    if heading is not None:
        top = header(h2(heading), div(actions, class_="actions") if actions is not None else None)
    return section(top, *content, class_="card wide" if wide else "card", id=id_)


def note(*content: Content, tone: Tone = "info") -> Element:
    return p(*content, class_=f"note {tone}")


def empty(*content: Content) -> Element:
    """Hint in place of an empty list: the next step for the user."""
    return div(*content, class_="empty")


def facts(rows: Iterable[tuple[Content, Content]]) -> Element:
    return dl([div(dt(name), dd(value)) for name, value in rows], class_="facts")


def figure_tile(name: str, value: Content, *, tone: Tone = "plain", below: Content = None) -> Element:
    """One number of an overview."""
    return div(
        div(name, class_="tile-name"),
        div(value, class_=f"tile-value {tone}"),
        div(below, class_="tile-below") if below is not None else None,
        class_="tile",
    )


def tiles(*found: Element) -> Element:
    return div(found, class_="tiles")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    """Empty for a column of buttons."""
    is_number: bool = False
    sort: str | None = None
    """Sort key of the column, if the table can be sorted by it."""
    is_optional: bool = False
    """Hidden on a narrow screen."""
    is_short: bool = False
    """First column of numbers or of other short words: it needs no room for names."""


@dataclass(frozen=True, slots=True)
class Sorting:
    path: str
    query: Mapping[str, str]
    sort: str
    descending: bool

    def link(self, key: str, *, is_number: bool) -> str:
        descending = not self.descending if key == self.sort else is_number  # the largest number first
        return (
            f"{self.path}?{urlencode({**self.query, 'sort': key, 'order': 'desc' if descending else 'asc'})}"
        )


def data_table(
    name: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[Content]],
    *,
    sorting: Sorting | None = None,
    id_: str | None = None,
    body_id: str | None = None,
) -> Element:
    """A table. `name` is for screen readers; the first cell of a row is its header."""
    return div(
        table(
            caption(name, class_="hidden"),
            thead(tr([_head(each, sorting) for each in columns])),
            tbody([table_row(columns, row) for row in rows], id=body_id),
            id=id_,
        ),
        class_="table-wrap",
        role="region",
        aria_label=name,
        tabindex="0",
    )


def table_row(columns: Sequence[Column], cells: Sequence[Content], **attributes: Attribute) -> Element:
    assert len(columns) == len(cells), f"{len(cells)} cells for {len(columns)} columns"
    made = [
        th(cell, scope="row", class_=_class(column)) if index == 0 else td(cell, class_=_class(column))
        for index, (column, cell) in enumerate(zip(columns, cells, strict=True))
    ]
    return tr(made, **attributes)


def _head(column: Column, sorting: Sorting | None) -> Element:
    if sorting is None or column.sort is None:
        shown: Content = column.name or span("Actions", class_="hidden")
        return th(shown, scope="col", class_=_class(column))
    is_current = column.sort == sorting.sort
    order = ("descending" if sorting.descending else "ascending") if is_current else None
    arrow = span(" ↓" if sorting.descending else " ↑", aria_hidden="true") if is_current else None
    link = a(column.name, arrow, href=sorting.link(column.sort, is_number=column.is_number))
    return th(link, scope="col", class_=_class(column), aria_sort=order)


def _class(column: Column) -> str | None:
    classes = (("num", column.is_number), ("opt", column.is_optional), ("short", column.is_short))
    names = [name for name, applies in classes if applies]
    return " ".join(names) or None


def pager(path: str, query: Mapping[str, str], *, offset: int, limit: int, total: int) -> Element | None:
    if total <= limit and not offset:
        return None

    def at(name: str, start: int, *, works: bool) -> Element:
        if not works:
            return span(name, class_="button ghost off", aria_disabled="true")
        return a(name, href=f"{path}?{urlencode({**query, 'offset': start})}", class_="button ghost")

    last = min(offset + limit, total)
    return nav(
        span(f"{offset + 1:,} to {last:,} of {total:,}" if last > offset else f"none of {total:,}"),
        at("Previous", max(offset - limit, 0), works=offset > 0),
        at("Next", offset + limit, works=last < total),
        class_="pager",
        aria_label="Pages",
    )


def tabs(found: Sequence[tuple[str, str]], current: str) -> Element:
    return nav(
        [a(name, href=path, aria_current="page" if name == current else None) for name, path in found],
        class_="tabs",
        aria_label="Views",
    )


def crumbs(found: Sequence[tuple[str, str]]) -> Element:
    return nav([a(name, href=path) for name, path in found], class_="crumbs", aria_label="Path")


# --- forms ---


def field(
    name: str,
    shown: str,
    *,
    value: str | int | None = None,
    kind: str = "text",
    hint: Content = None,
    **attributes: Attribute,
) -> Element:
    return _labelled(
        name,
        shown,
        input_(
            type=kind,
            name=name,
            id=f"field-{name}",
            value=value,
            autocomplete=attributes.pop("autocomplete", "off"),
            aria_describedby=f"hint-{name}" if hint is not None else None,
            **attributes,
        ),
        hint,
    )


def text_field(
    name: str, shown: str, *, value: str = "", rows: int = 4, hint: Content = None, **attributes: Attribute
) -> Element:
    described = f"hint-{name}" if hint is not None else None
    area = textarea(
        value,
        name=name,
        id=f"field-{name}",
        rows=rows,
        spellcheck="false",
        aria_describedby=described,
        **attributes,
    )
    return _labelled(name, shown, area, hint)


def choice(
    name: str, shown: str, options: Sequence[tuple[str, str]], *, value: str = "", hint: Content = None
) -> Element:
    made = [option(title, value=each, selected=each == value) for each, title in options]
    described = f"hint-{name}" if hint is not None else None
    return _labelled(
        name, shown, select(made, name=name, id=f"field-{name}", aria_describedby=described), hint
    )


def check(name: str, shown: Content, *, value: str = "true", checked: bool = False) -> Element:
    box = input_(type="checkbox", name=name, value=value, checked=checked)
    return label(box, span(shown), class_="check")


def _labelled(name: str, shown: str, control: Element, hint: Content) -> Element:
    below = small(hint, id=f"hint-{name}", class_="hint") if hint is not None else None
    return div(label(shown, for_=f"field-{name}"), control, below, class_="field")


def folded(shown: Content, *content: Content, class_: str = "folded", open_: bool = False) -> Element:
    return details(summary(shown), div(content, class_="folded-body"), class_=class_, open=open_)
