"""Files of properties: what java.util.Properties reads, and a way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.properties import read_properties, render_properties


def test_properties_are_read_as_java_reads_them() -> None:
    text = "# comment\n! another\n a.b = 1 \nc: two words\nd\te\nlist=x,\\\n   y\n\nempty=\n"
    assert read_properties(text) == {"a.b": "1", "c": "two words", "d": "e", "list": "x,y", "empty": ""}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"path=C:\\data", {"path": r"C:\data"}),
        (r"jaas=\"a\" \: \= \#", {"jaas": '"a" : = #'}),
        (r"a\=b\:c\ d=e", {"a=b:c d": "e"}),
        (r"lines=1\n2\t3\r4\f5", {"lines": "1\n2\t3\r4\f5"}),
        (r"other=\q\z", {"other": "qz"}),
        (r"umlaut=\u00fC", {"umlaut": "ü"}),
        (r"pair=\ud83d\ude00", {"pair": "😀"}),
        ("even=a\\\\\nodd=b\\\\\\\n  c", {"even": "a\\", "odd": "b\\c"}),
        ("a=1\\\r\n\t 2\rb=3", {"a": "12", "b": "3"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("# a comment goes not on \\\na=1", {"a": "1"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a = = 1\nb   :2\nc\n=d", {"a": "= 1", "b": "2", "c": "", "": "d"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\x0b2\u20283", {"a": "1\x0b2\u20283"}),
    ],
)
def test_escapes_and_joined_lines(text: str, found: dict[str, str]) -> None:
    assert read_properties(text) == found


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u12x4", r"\u=1"])
def test_an_escape_without_its_digits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        read_properties(text)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(_TEXT, _TEXT.map(str.strip)))
def test_what_is_written_is_read(properties: dict[str, str]) -> None:
    text = render_properties(properties)
    assert text.isascii()
    assert read_properties(text) == properties
