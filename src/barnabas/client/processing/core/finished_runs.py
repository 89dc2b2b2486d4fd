"""Finished records above a committed offset, as text for the metadata of that commit.

    b1:<base64url of varints>      runs of offsets from the committed one on, by turns:
                                   not finished, finished, not finished, finished …

The committed offset itself is not finished, so the first run is never empty. The text belongs to the offset
with which it is committed: both change at once, and a tool that resets the offset drops the text.

Text that is not of this form, or of a later version, is read as "nothing is finished": records are then
handled again, none is lost.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Final

PREFIX: Final = "b1:"
RUNS_MAX: Final = 4_096
"""A longer text is not ours: the coordinator takes 4,096 bytes by default."""


def encode_runs(committed: int, finished: Iterable[tuple[int, int]]) -> str:
    """Text for ranges [first, end) of finished offsets, in order and not touching. Empty without any."""
    out = bytearray()
    at = committed
    for first, end in finished:
        _write(out, first - at)
        _write(out, end - first)
        at = end
    return PREFIX + base64.urlsafe_b64encode(out).rstrip(b"=").decode() if out else ""


def is_runs(text: str) -> bool:
    """True for a text of this form. Others belong to applications."""
    return text.startswith(PREFIX)


def decode_runs(committed: int, text: str) -> list[tuple[int, int]]:
    """Ranges [first, end) of finished offsets above the committed one."""
    if not is_runs(text):
        return []
    body = text[len(PREFIX) :]
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        lengths = _read_all(data)
    except (binascii.Error, ValueError):
        return []
    if len(lengths) % 2 or not all(lengths):
        return []
    found: list[tuple[int, int]] = []
    at = committed
    for skipped, finished in zip(lengths[::2], lengths[1::2], strict=True):
        found.append((at + skipped, at + skipped + finished))
        at += skipped + finished
    return found


def _write(out: bytearray, value: int) -> None:
    assert value > 0, "runs do not touch"
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _read_all(data: bytes) -> list[int]:
    values: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        if byte > 0x7F:
            shift += 7
            if shift > 63:
                raise ValueError("a run is longer than any log")
            continue
        values.append(value)
        if len(values) > RUNS_MAX:
            raise ValueError("too many runs")
        value = shift = 0
    if shift:
        raise ValueError("the last run is cut")
    return values
