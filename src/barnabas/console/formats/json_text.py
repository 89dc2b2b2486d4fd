"""JSON as text of bounded length."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def json_text(
    found: Any, limit: int, *, indent: int | None = None, default: Callable[[Any], Any] | None = None
) -> str:
    """Text that ends soon after this many characters. With an indent, the text of a deeply nested value is a
    thousand times as long as the value, so no more of it is made. VALUE_ERROR or RECURSION_ERROR for what
    JSON cannot say.
    """
    parts: list[str] = []
    length = 0
    for part in json.JSONEncoder(ensure_ascii=False, indent=indent, default=default).iterencode(found):
        parts.append(part)
        length += len(part)
        if length > limit:
            break
    return "".join(parts)
