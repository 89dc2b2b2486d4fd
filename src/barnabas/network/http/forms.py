"""Fields of a form (`application/x-www-form-urlencoded`), decoded in a memory of a few times its size.

The standard library makes an object for each escape: a form of four megabytes takes three hundred.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

FIELDS_MAX: Final = 1_000
PIECE_BYTES: Final = 16 * 1024
ESCAPE_BYTES: Final = 3


def form_fields(body: bytes) -> list[tuple[str, str]]:
    """Names and values. VALUE_ERROR for too many of them, and for bytes that are not UTF-8."""
    pairs = body.split(b"&", FIELDS_MAX)
    if len(pairs) > FIELDS_MAX:
        raise ValueError(f"a form has at most {FIELDS_MAX} fields")
    found = []
    for pair in filter(None, pairs):
        name, _, value = pair.partition(b"=")
        found.append((_unescaped(name), _unescaped(value)))
    return found


def _unescaped(text: bytes) -> str:
    text = text.replace(b"+", b" ")
    found = bytearray()
    at = 0
    while at < len(text):
        end = at + PIECE_BYTES
        escape = text.rfind(b"%", end - ESCAPE_BYTES + 1, end)
        if escape >= 0:  # an escape stays whole
            end = escape
        found += unquote_to_bytes(text[at:end])
        at = end
    return found.decode()
