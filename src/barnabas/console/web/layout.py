"""Frame of every page: head, navigation, notices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from barnabas import __version__
from barnabas.console.html.elements import (
    Content,
    Element,
    OutsidePath,
    a,
    body,
    button,
    details,
    div,
    element,
    h1,
    head,
    header,
    html,
    li,
    link,
    main,
    meta,
    nav,
    p,
    script,
    span,
    summary,
    title,
    ul,
)
from barnabas.console.web.assets import path_of
from barnabas.console.web.navigation import ClusterLink, Place, is_current
from barnabas.console.web.sessions import Notice

HTMX: Final = 'extensions:"hx-csp,sse",includeIndicatorCSS:false'
HTMX_SCRIPT: Final = "vendor/htmx.min.js"
"""Not deferred. A deferred htmx looks through the page as soon as it runs, perhaps before an extension has
arrived: the page would stay without live figures."""
DEFERRED_SCRIPTS: Final = ("vendor/hx-csp.min.js", "vendor/hx-sse.min.js", "console.js")


@dataclass(frozen=True, slots=True)
class Frame:
    title: str
    path: str
    cluster: str
    user: str | None
    is_read_only: bool
    notices: Sequence[Notice]
    places: Sequence[Place]
    sign_out: Element | None
    nonce: str
    clusters: Sequence[ClusterLink] = ()
    """All clusters of a console of several."""


def page(frame: Frame, *content: Content) -> Element:
    return html(
        _head(frame),
        body(
            a("Skip to the content", href="#content", class_="skip"),
            div(
                _side(frame),
                main(_notices(frame.notices), content, id="content", tabindex="-1"),
                class_="shell",
            ),
        ),
        lang="en",
    )


def heading(shown: Content, *beside: Content, above: Content = None, below: Content = None) -> Element:
    """Title of a page, with its actions beside it."""
    return header(
        div(above, h1(shown), p(below, class_="lead") if below is not None else None),
        div(beside, class_="actions") if beside else None,
        class_="page-head",
    )


def _head(frame: Frame) -> Element:
    return head(
        meta(charset="utf-8"),
        meta(name="viewport", content="width=device-width, initial-scale=1"),
        meta(name="color-scheme", content="light dark"),
        meta(name="htmx-config", content=HTMX),
        title(f"{frame.title} · {frame.cluster}"),
        link(rel="icon", type="image/svg+xml", href=path_of("icon.svg")),
        link(rel="stylesheet", href=path_of("console.css")),
        script(src=path_of(HTMX_SCRIPT), nonce=frame.nonce),
        [script(src=path_of(each), nonce=frame.nonce, defer=True) for each in DEFERRED_SCRIPTS],
    )


def _side(frame: Frame) -> Element:
    return header(
        div(
            a(
                element("img", src=path_of("icon.svg"), alt="", width=24, height=24),
                span("Barnabas"),
                href="/",
                class_="brand",
            ),
            None if frame.clusters else p(frame.cluster, class_="cluster", title="Cluster"),
        ),
        _clusters(frame) if frame.clusters else None,
        details(summary("Menu"), _navigation(frame), class_="menu") if frame.places else None,
        _navigation(frame, class_="wide-nav") if frame.places else None,
        _foot(frame),
        class_="side",
    )


def _clusters(frame: Frame) -> Element:
    """The cluster of the page, and a link to each of the others."""
    links = [
        a(each.name, href=OutsidePath(each.path), aria_current="true" if each.name == frame.cluster else None)
        for each in frame.clusters
    ]
    every = a("All clusters", href=OutsidePath("/"), aria_current=None if frame.places else "page")
    return details(
        summary(frame.cluster, title="Choose a cluster"),
        nav(ul([li(each) for each in (*links, every)]), aria_label="Clusters"),
        class_="switch",
    )


def _navigation(frame: Frame, class_: str = "small-nav") -> Element:
    shown = [each for each in frame.places if each.is_shown]
    return nav(
        ul([li(a(each.title, href=each.path, aria_current=_current(each, frame))) for each in shown]),
        class_=class_,
        aria_label="Sections" if class_ == "wide-nav" else "Sections, in the menu",
    )


def _current(place: Place, frame: Frame) -> str | None:
    return "page" if is_current(place, frame.path, frame.places) else None


def _foot(frame: Frame) -> Element:
    user = None
    if frame.user is not None and frame.sign_out is None:
        user = div(span(frame.user, class_="user"))
    elif frame.user is not None and frame.sign_out is not None:
        made = Element(
            frame.sign_out.tag,
            frame.sign_out.attributes,
            (*frame.sign_out.children, button("Sign out", class_="ghost small")),
        )
        user = div(span(frame.user, class_="user"), made)
    return div(
        span("read-only", class_="badge warn") if frame.is_read_only else None,
        user,
        button("Light or dark", type="button", class_="ghost small", id="theme"),
        a("API", href="/api") if frame.places else None,
        span(f"v{__version__}", class_="version"),
        class_="foot",
    )


def _notices(notices: Sequence[Notice]) -> Content:
    if not notices:
        return None
    return div(
        [p(each.text, class_=f"note {each.tone}") for each in notices], role="status", aria_live="polite"
    )
