"""Client-chosen text in log lines: cut and escaped, so that it can neither end a line nor fill a disk.

Group ids, member ids, transactional ids and the reasons of joining members may have 32 KiB of any characters.
The code that logs one cuts it; the log formatter escapes the rest in every line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from barnabas.core.limits import NAME_CHARS_REMEMBERED_MAX

_CONTROLS = "\x00-\x1f\x7f-\x9f\u2028\u2029"
"""Characters that end a line in some viewer, or that a terminal takes for a command."""
_CONTROL = re.compile(f"[{_CONTROLS}]")
_CONTROL_IN_LINE = re.compile(f"(?!\n)[{_CONTROLS}]")


def cut(text: str) -> str:
    length = len(text)
    if length <= NAME_CHARS_REMEMBERED_MAX:
        return text
    return f"{text[:NAME_CHARS_REMEMBERED_MAX]}… ({length} characters)"


def named(names: Sequence[object], at_most: int = 3) -> str:
    """The first names of a list, and how many more there are."""
    shown = ", ".join(map(str, names[:at_most]))
    left = len(names) - at_most
    return f"{shown} and {left} more" if left > 0 else shown


def escaped(text: str) -> str:
    """The text as one line."""
    return _CONTROL.sub(_escape, text)


def escaped_lines(text: str) -> str:
    """The lines of a traceback, each escaped."""
    return _CONTROL_IN_LINE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
