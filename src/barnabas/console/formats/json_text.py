"""JSON as text of bounded length."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def json_text(
    found: Any, limit: int, *, indent: int | None = None, default: Callable[[Any], Any] | None = None
) -> str:
    """Text that ends soon after this many characters, and no more of it is made.

    With an indent, the text of a deeply nested value is a thousand times as long as the value. A value that
    JSON cannot express raises ValueError or RecursionError.
    """
    parts: list[str] = []
    length = 0
    for part in json.JSONEncoder(ensure_ascii=False, indent=indent, default=default).iterencode(found):
        parts.append(part)
        length += len(part)
        if length > limit:
            break
    return "".join(parts)
