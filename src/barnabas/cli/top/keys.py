"""Keys of the live view, and what each changes. No I/O but the terminal's mode."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from barnabas.console.view.rows import GroupSort, TopicSort

TOPIC_SORTS: Final[dict[str, TopicSort]] = {
    "n": "name",
    "s": "size",
    "r": "records",
    "i": "in",
    "o": "out",
    "p": "partitions",
}
GROUP_SORTS: Final[dict[str, GroupSort]] = {
    "l": "lag",
    "a": "time",
    "g": "name",
    "m": "members",
    "t": "state",
}
QUIT: Final = ("q", "\x03", "\x04")
HELP: Final = (
    "topics by [b]i[/]n [b]o[/]ut [b]s[/]ize [b]r[/]ecords [b]p[/]artitions [b]n[/]ame · "
    "groups by [b]l[/]ag [b]a[/]ge [b]m[/]embers s[b]t[/]ate [b]g[/]roup · "
    "same key again reverses · [b]space[/] pauses · [b]q[/] quits"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """Sort orders and filters that the user has chosen."""

    topics_by: TopicSort = "in"
    topics_descending: bool = True
    groups_by: GroupSort = "lag"
    groups_descending: bool = True
    is_paused: bool = False
    is_over: bool = False

    def after(self, key: str) -> Choice:
        """The choice after a key; a key without a meaning changes nothing."""
        if key in QUIT:
            return replace(self, is_over=True)
        if key == " ":
            return replace(self, is_paused=not self.is_paused)
        topics_by, groups_by = TOPIC_SORTS.get(key), GROUP_SORTS.get(key)
        if topics_by is not None:
            descending = not self.topics_descending if topics_by == self.topics_by else topics_by != "name"
            return replace(self, topics_by=topics_by, topics_descending=descending)
        if groups_by is not None:
            is_text = groups_by in ("name", "state")
            descending = not self.groups_descending if groups_by == self.groups_by else not is_text
            return replace(self, groups_by=groups_by, groups_descending=descending)
        return self


@contextmanager
def unbuffered_keys() -> Iterator[None]:
    """Keys arrive one by one and are not shown, until the end of this context."""
    import termios  # noqa: PLC0415 - not on every system
    import tty  # noqa: PLC0415

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
