"""HTML as values: nothing that a record holds becomes markup."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.html.elements import OutsidePath, a, div, element, form, render, script, span, text
from barnabas.console.html.figures import DASH, duration, moment, number, rate, size


class Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def seen(html: str) -> Seen:
    found = Seen()
    found.feed(html)
    found.close()
    return found


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</pre><svg/onload=alert(1)>",
    "&lt;b&gt;",
    "<!--",
    "]]>",
    "\x00\x1b[31m\x7f",
    "\u202etxt.exe",
    "<hx-partial hx-target='body'>",
)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_text_stays_a_text(hostile: str) -> None:
    found = seen(render(div(span(hostile, title=hostile))))
    assert found.tags == ["div", "span"]
    assert list(found.attributes) == ["title"]


@given(st.text())
def test_any_text_comes_back_as_it_was_or_as_its_pictures(any_text: str) -> None:
    found = seen(render(div(any_text, title=any_text)))
    assert found.tags == ["div"]
    plain = [char for char in any_text if char.isprintable()]
    assert [char for char in found.text if char in plain] == plain or "\r" in any_text


def test_control_characters_show_as_their_pictures() -> None:
    assert render(span("\x00a\x1b\x7f")) == "<span>\u2400a\u241b\u2421</span>"


@pytest.mark.parametrize(
    "target",
    [
        "javascript:alert(1)",
        "//elsewhere.test/",
        "/\\elsewhere.test/",
        "https://elsewhere.test",
        "/a b",
        "data:text/html,x",
    ],
)
def test_a_link_leads_to_a_path_of_the_console(target: str) -> None:
    with pytest.raises(ValueError, match="not a path of the console"):
        render(a("x", href=target))


def test_an_element_with_htmx_carries_the_nonce_of_its_page() -> None:
    made = div(span("x", hx_get="/topics"), span("y"), attributes={"hx-sse:connect": "/live"})
    html = render(made, "abc")
    assert html == (
        '<div hx-sse:connect="/live" hx-nonce="abc"><span hx-get="/topics" hx-nonce="abc">x</span>'
        "<span>y</span></div>"
    )


def test_attributes_without_a_value_and_left_out() -> None:
    assert (
        render(script(defer=True, src="/x", nonce=None, hidden=False)) == '<script defer src="/x"></script>'
    )
    assert render(element("br")) == "<br>"
    assert text(div("a", [span("b"), None], 1)) == "ab1"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(None), DASH),
        (number(1234567), "1,234,567"),
        (number(2.25), "2.2"),
        (size(0), "0 B"),
        (size(1536), "1.5 KiB"),
        (size(2**63), "8192.0 PiB"),
        (rate(10.0, "B"), "10 B/s"),
        (duration(350), "350 ms"),
        (duration(61_000), "1 min 1 s"),
        (duration(90_000_000), "1 d 1 h"),
        (duration(0), "0 ms"),
        (text(moment(-1)), DASH),
        (text(moment(0)), "1970-01-01 00:00:00.000"),
        (text(moment(2**62)), str(2**62)),
    ],
)
def test_figures(shown: str, expected: str) -> None:
    assert shown == expected


def test_a_base_goes_before_the_paths_of_a_page() -> None:
    live = div(attributes={"hx-sse:connect": "/live"}, hx_get="/more", title="/a text")
    found = render((a("x", href="/topics?q=1"), form(action="/topics"), live), "n", "/clusters/prod")
    assert 'href="/clusters/prod/topics?q=1"' in found
    assert 'action="/clusters/prod/topics"' in found
    assert 'hx-sse:connect="/clusters/prod/live"' in found
    assert 'hx-get="/clusters/prod/more"' in found
    assert 'title="/a text"' in found
    same = render((a("x", href="#top"), a("y", href="?page=2"), a("z", href=OutsidePath("/"))), "", "/base")
    assert same == '<a href="#top">x</a><a href="?page=2">y</a><a href="/">z</a>'
    with pytest.raises(ValueError, match="not a path of the console"):
        render(a("x", href=OutsidePath("//elsewhere.test")), "", "/base")
