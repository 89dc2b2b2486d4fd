"""Checks of texts with a format: offsets, partitions, watermarks, patterns, pairs and addresses.

An option names one of these as its check. So a typing error is reported with its line before Spark starts,
not by a task minutes later. Each function returns a sentence, or None.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from typing import Any

from barnabas.security.identity.secret_references import REFERENCE

_OFFSETS = ("earliest", "latest")
_OFFSETS_FORM = 'earliest, latest, or JSON such as {"topic": {"0": 23, "1": -2}}'
_WATERMARK = re.compile(r"\S+\s+(interval\s+)?(\d+(\.\d+)?\s*[a-z]+\s*)+", re.IGNORECASE)
_JAVAS = ("bad escape", "unknown extension ?<", "global flags not at the start")
"""Python's errors for `\\p{L}`, for `(?<name>x)`, and for `a(?i)b`, which Java accepts."""
_NO_SEPARATOR = r"(?:\$\{[^}]*\}|\$(?!\{)|[^\s:/@\"'$])"
_PASSWORD_BEFORE_HOST = re.compile(rf"(://{_NO_SEPARATOR}*:)((?:\$\{{[^}}]*\}}|[^\s/\"'])+)(?=@)")
"""A password may contain a colon or an `@`, although it should not."""
_PASSWORD_IN_QUERY = re.compile(
    r"([?&](?:ssl|key|trust)?(?:store)?password=)((?:\$\{[^}]*\}|[^\s&\"'])+)", re.IGNORECASE
)
HIDDEN = "[hidden]"
_SIZE = re.compile(r"\s*(\d{1,6})\s*(b|kb|mb|gb)?\s*", re.IGNORECASE)
_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SIZE_BYTES_MIN = 64 << 10
_ASSIGN_FORM = 'JSON such as {"topic": [0, 1]}'


def offsets_complaint(text: str) -> str | None:
    if text in _OFFSETS:
        return None
    if not text.startswith("{"):
        close = difflib.get_close_matches(text.lower(), _OFFSETS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return f"found {text!r}; expected {_OFFSETS_FORM}{hint}"
    return _tree_complaint(text, _OFFSETS_FORM, _is_offset_map)


def assign_complaint(text: str) -> str | None:
    return _tree_complaint(text, _ASSIGN_FORM, _is_partition_list)


def watermark_complaint(text: str) -> str | None:
    if _WATERMARK.fullmatch(text.strip()):
        return None
    return f"found {text!r}; expected `<column> <delay>`, such as 'at 10 minutes'"


def password_complaint(text: str) -> str | None:
    """Check of an address, with or without references: a password inside it would be stored and shown."""
    if hide_passwords(text) == text:
        return None
    return (
        "found a password in plain text in the address; expected an address without, and the password as an"
        " option or as a reference: ${env:NAME}"
    )


def hide_passwords(text: str) -> str:
    """`text` without the passwords in its addresses. References stay."""
    for pattern in (_PASSWORD_BEFORE_HOST, _PASSWORD_IN_QUERY):
        text = pattern.sub(lambda found: found[0] if _is_reference(found[2]) else found[1] + HIDDEN, text)
    return text


def _is_reference(text: str) -> bool:
    return REFERENCE.fullmatch(text) is not None or text == HIDDEN


def pattern_complaint(text: str) -> str | None:
    """Errors that every dialect of regular expressions has. Java's extensions are left to the engine."""
    try:
        re.compile(text)
    except re.error as error:
        if error.msg.startswith(_JAVAS):
            return None
        return f"found {text!r}; expected a regular expression: {error.msg} at position {error.pos}"
    return None


def size_bytes(text: str) -> int:
    """`128 MB` in bytes; units are those of memory, so `1 KB` is 1,024."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a size")
    return int(found[1]) * _UNITS[(found[2] or "b").lower()[0]]


def size_complaint(text: str) -> str | None:
    if _SIZE.fullmatch(text) is None or size_bytes(text) < SIZE_BYTES_MIN:
        return f"found {text!r}; expected a size of at least 64 KB, such as '128 MB'"
    return None


def pairs_complaint(items: Sequence[str]) -> str | None:
    wrong = next((item for item in items if not all(item.partition(":"))), None)
    return None if wrong is None else f"found {wrong!r}; expected pairs such as 'old:new'"


def _tree_complaint(text: str, form: str, is_leaf: Any) -> str | None:
    try:
        tree = json.loads(text)
    except ValueError as error:
        return f"found {text!r}, which is not JSON ({error}); expected {form}"
    if isinstance(tree, dict) and tree and all(map(is_leaf, tree.values())):
        return None
    return f"found {text!r}; expected {form}"


def _is_offset_map(value: Any) -> bool:
    return isinstance(value, dict) and all(
        partition.isdecimal() and isinstance(offset, int) and offset >= -2
        for partition, offset in value.items()
    )


def _is_partition_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, int) and each >= 0 for each in value)
