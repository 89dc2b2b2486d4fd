"""Texts that have a form of their own: offsets, partitions, watermarks, patterns, pairs.

An option names one of these as its check, so that a slip is told with its line, before Spark
starts, and not by a task minutes later. Each function returns a sentence, or None.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from typing import Any

_OFFSETS = ("earliest", "latest")
_OFFSETS_FORM = 'earliest, latest, or JSON such as {"topic": {"0": 23, "1": -2}}'
_WATERMARK = re.compile(r"\S+\s+(interval\s+)?(\d+(\.\d+)?\s*[a-z]+\s*)+", re.IGNORECASE)
_JAVAS = ("bad escape", "unknown extension ?<", "global flags not at the start")
"""What Python says of `\\p{L}`, of `(?<name>x)`, and of `a(?i)b`."""
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


def database_complaint(text: str) -> str | None:
    """Of an address without references; what stands before the host may be a password, and is not shown."""
    scheme, _, rest = text.removeprefix("jdbc:").partition("://")
    if scheme in ("postgresql", "postgres") and rest.partition("/")[2]:
        return None
    kind = f"{scheme.partition(':')[0]}://…"
    return f"found {kind!r}; expected postgresql://host:port/database: only PostgreSQL is spoken here"


def pattern_complaint(text: str) -> str | None:
    """Only what no dialect takes: what Java has and Python lacks is left to the engine."""
    try:
        re.compile(text)
    except re.error as error:
        if error.msg.startswith(_JAVAS):
            return None
        return f"found {text!r}; expected a regular expression: {error.msg} at position {error.pos}"
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
