"""Properties files, as `java.util.Properties` reads and writes them.

A line is `key=value`, `key: value` or `key value`; `#` and `!` begin comments. A backslash at the end of a
line joins the next one to it, without its leading white space. Elsewhere a backslash takes the meaning from
the character after it, or gives it one (`\\t`, `\\n`, `\\r`, `\\f`, `\\uXXXX`). White space at the end of a
value is dropped, as Kafka does with every value from such a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_BLANK = " \t\f"
_NEW_LINE = re.compile(r"\r\n|\r|\n")
_PAIR = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u([0-9a-fA-F]{4})?|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\\": "\\\\"} | {control: f"\\{letter}" for letter, control in _CONTROLS.items()}
_ESCAPED_IN_KEYS = _ESCAPED | {mark: f"\\{mark}" for mark in "=: #!"}


def read_properties(text: str) -> dict[str, str]:
    """Parse the text; ValueError for a `\\u` without four digits."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        assert pair is not None
        name, value = map(_unescaped, pair.groups())
        found[name] = value.strip()
    return found


def render_properties(properties: Mapping[str, str]) -> str:
    """Text, in ASCII, that `read_properties` and Java read as `properties`."""
    return "".join(
        f"{_escaped(name, _ESCAPED_IN_KEYS)}={_escaped(value, _ESCAPED)}\n"
        for name, value in properties.items()
    )


def _logical_lines(text: str) -> Iterator[str]:
    begun = ""
    for natural in _NEW_LINE.split(text):
        line = natural.lstrip(_BLANK)
        if not begun and line.startswith(("#", "!")):
            continue
        begun += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = begun[:-1]
            continue
        if begun:
            yield begun
        begun = ""
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    meant = _ESCAPE.sub(_meant, text)
    # Java's characters are UTF-16: two escapes may be one character.
    return meant.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _meant(escape: re.Match[str]) -> str:
    symbol, digits = escape.groups()
    if digits:
        return chr(int(digits, 16))
    if symbol == "u":
        raise ValueError("a \\u in it has no four hexadecimal digits after it")
    return _CONTROLS.get(symbol, symbol)


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    escaped = "".join(
        escapes.get(character) or (character if character.isascii() else _utf_16(character))
        for character in text
    )
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _utf_16(character: str) -> str:
    return re.sub("(.{4})", r"\\u\1", character.encode("utf-16-be", "surrogatepass").hex())
