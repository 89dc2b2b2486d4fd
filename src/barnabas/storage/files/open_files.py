"""Bound on segments with an open file: the least recently opened one is closed first.

A topic with small segments has tens of thousands of them, and each keeps its file open after a write or a
read. Without a bound they take the descriptors of all connections. The next use of a closed segment opens its
file again. Any thread may open a segment.
"""

from __future__ import annotations

import resource
from threading import Lock
from typing import Protocol

from barnabas.core.integers import INT_MAX


class Owner(Protocol):
    """A segment."""

    def close_file(self) -> None: ...


def files_allowed() -> int:
    """Descriptors of the process that segments may take. Connections take half of them at most."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return INT_MAX if limit == resource.RLIM_INFINITY else max(limit // 4, 16)


class OpenFiles:
    def __init__(self, most: int | None = None) -> None:
        self._most = files_allowed() if most is None else most
        self._lock = Lock()
        self._open: dict[Owner, None] = {}
        """In the order in which they were opened."""

    def __len__(self) -> int:
        return len(self._open)

    def add(self, owner: Owner) -> None:
        """A segment has opened its file."""
        with self._lock:
            self._open.pop(owner, None)
            self._open[owner] = None
            first = next(iter(self._open)) if len(self._open) > self._most else None
            if first is not None:
                del self._open[first]
        if first is not None:
            first.close_file()

    def remove(self, owner: Owner) -> None:
        """A segment closes its file, or is deleted: its readers keep the file."""
        with self._lock:
            self._open.pop(owner, None)
