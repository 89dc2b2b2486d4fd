"""HTML and SVG elements as values: `div("text", p(link), class_="card")`.

There is no way around the escaping: text and attribute values become HTML only in `render`, which escapes all
of them. No function takes ready HTML.

- A keyword is an attribute: `class_` is class, `hx_get` is hx-get. True is an attribute without a value, None
  and False leave it out. Other names come in a mapping: `attributes={"hx-sse:connect": url}`.
- `href`, `src` and `action` are paths of the console itself, or the renderer raises: no record can make a
  link that runs script. `base` goes before them: the pages of one cluster of several are below it.
- Every element with htmx attributes is stamped with the nonce of its page (`hx-csp` drops the others).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Final, NamedTuple, TypeAlias

VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta"})
_PATHS: Final = frozenset({"href", "src", "action", "formaction"})
_BASED: Final = _PATHS | {"hx-get", "hx-sse:connect"}
_OWN_PATH: Final = re.compile(r"(/(?![/\\])|#|\?)[^\x00-\x20]*|")
"""Browsers read a backslash as a slash, and two slashes as the begin of another host."""
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")
"""Characters that HTML does not have. They show as their pictures: `\\x00` as U+2400."""

Attribute: TypeAlias = str | int | float | bool | None
Content: TypeAlias = "str | int | float | Element | Iterable[Content] | None"


class OutsidePath(str):
    """A path outside the pages of the cluster: nothing goes before it."""

    __slots__ = ()


class Element:
    __slots__ = ("attributes", "children", "tag")

    def __init__(self, tag: str, attributes: Mapping[str, Attribute], children: tuple[Content, ...]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children = children


def element(
    tag: str, *children: Content, attributes: Mapping[str, Attribute] | None = None, **keywords: Attribute
) -> Element:
    named = {name.rstrip("_").replace("_", "-"): value for name, value in keywords.items()}
    return Element(tag, {**named, **(attributes or {})}, children)


def render(content: Content, nonce: str = "", base: str = "") -> str:
    parts: list[str] = []
    _render(content, _Page(nonce, base), parts.append)
    return "".join(parts)


def document(root: Element, nonce: str, base: str = "") -> str:
    return "<!doctype html>\n" + render(root, nonce, base)


def text(content: Content) -> str:
    """The text of the content, without markup."""
    if content is None:
        return ""
    if isinstance(content, Element):
        return "".join(text(child) for child in content.children)
    if isinstance(content, str | int | float):
        return str(content)
    return "".join(text(each) for each in content)


class _Page(NamedTuple):
    nonce: str
    base: str


def _render(content: Content, page: _Page, put: Callable[[str], None]) -> None:
    if content is None:
        return
    if isinstance(content, str):
        put(_escaped(content))
    elif isinstance(content, Element):
        _render_element(content, page, put)
    elif isinstance(content, int | float):
        put(str(content))
    else:
        for each in content:
            _render(each, page, put)


def _render_element(found: Element, page: _Page, put: Callable[[str], None]) -> None:
    put(f"<{found.tag}")
    is_live = False
    for name, value in found.attributes.items():
        if value is None or value is False:
            continue
        is_live = is_live or name.startswith("hx-")
        if value is True:
            put(f" {name}")
            continue
        shown = str(value)
        if name in _PATHS and not _OWN_PATH.fullmatch(shown):
            raise ValueError(f"{name}={shown!r} is not a path of the console")
        if name in _BASED and shown.startswith("/") and not isinstance(value, OutsidePath):
            shown = page.base + shown
        put(f' {name}="{_escaped(shown)}"')
    if is_live:
        put(f' hx-nonce="{_escaped(page.nonce)}"')
    put(">")
    if found.tag in VOID:
        return
    for child in found.children:
        _render(child, page, put)
    put(f"</{found.tag}>")


def _escaped(shown: str) -> str:
    if _FORBIDDEN.search(shown):
        shown = _FORBIDDEN.sub(_picture, shown)
    return escape(shown)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def _maker(tag: str) -> Callable[..., Element]:
    def make(
        *children: Content, attributes: Mapping[str, Attribute] | None = None, **keywords: Attribute
    ) -> Element:
        return element(tag, *children, attributes=attributes, **keywords)

    make.__name__ = tag
    return make


a = _maker("a")
abbr = _maker("abbr")
article = _maker("article")
body = _maker("body")
button = _maker("button")
caption = _maker("caption")
code = _maker("code")
dd = _maker("dd")
details = _maker("details")
div = _maker("div")
dl = _maker("dl")
dt = _maker("dt")
em = _maker("em")
fieldset = _maker("fieldset")
footer = _maker("footer")
form = _maker("form")
h1 = _maker("h1")
h2 = _maker("h2")
h3 = _maker("h3")
head = _maker("head")
header = _maker("header")
html = _maker("html")
input_ = _maker("input")
label = _maker("label")
legend = _maker("legend")
li = _maker("li")
link = _maker("link")
main = _maker("main")
meta = _maker("meta")
nav = _maker("nav")
option = _maker("option")
p = _maker("p")
pre = _maker("pre")
script = _maker("script")
section = _maker("section")
select = _maker("select")
small = _maker("small")
span = _maker("span")
strong = _maker("strong")
summary = _maker("summary")
table = _maker("table")
tbody = _maker("tbody")
td = _maker("td")
textarea = _maker("textarea")
th = _maker("th")
thead = _maker("thead")
time_ = _maker("time")
title = _maker("title")
tr = _maker("tr")
ul = _maker("ul")
