"""Text that clients chose, in lines of a log: it must neither end a line nor fill a disk.

Group ids, member ids, transactional ids and the reasons for which members join may have 32 KiB of any
characters. Who logs one cuts it; whoever writes lines out escapes what is left, in all of them.
"""

from __future__ import annotations

import re

from barnabas.core.limits import NAME_CHARS_REMEMBERED_MAX

_CONTROLS = "\x00-\x1f\x7f-\x9f\u2028\u2029"
"""What ends a line somewhere, and what a terminal takes for an order."""
_CONTROL = re.compile(f"[{_CONTROLS}]")
_CONTROL_IN_LINE = re.compile(f"(?!\n)[{_CONTROLS}]")


def cut(text: str) -> str:
    length = len(text)
    if length <= NAME_CHARS_REMEMBERED_MAX:
        return text
    return f"{text[:NAME_CHARS_REMEMBERED_MAX]}… ({length} characters)"


def escaped(text: str) -> str:
    """One line, whatever the text was."""
    return _CONTROL.sub(_escape, text)


def escaped_lines(text: str) -> str:
    """Of a traceback, which has lines of its own: the same for each of them."""
    return _CONTROL_IN_LINE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
