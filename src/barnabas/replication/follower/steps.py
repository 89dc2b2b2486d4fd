"""Steps that a replica fetcher asks its driver to take."""

from __future__ import annotations

from typing import Any, NamedTuple

from barnabas.core.ids import BrokerId
from barnabas.protocol.schema.message import Message
from barnabas.storage.log.parts.flush_state import CutWork


class Connect(NamedTuple):
    """Open a connection to the broker."""

    source: BrokerId


class Send(NamedTuple):
    """Send the request, and return its response to the fetcher."""

    request: Message
    response_class: type[Any]
    version: int


class Sync(NamedTuple):
    """Sync truncated logs to disk."""

    cuts: tuple[CutWork | None, ...]

    def run(self) -> list[OSError | None]:
        """Sync off the loop; the outcome of each truncation."""
        return [_outcome(cut) for cut in self.cuts]


class Rest(NamedTuple):
    """Wait until a time or a change."""

    until_ms: float
    """`math.inf`: until something changes."""


Step = Connect | Send | Sync | Rest


def _outcome(cut: CutWork | None) -> OSError | None:
    try:
        if cut is not None:
            cut()
    except OSError as error:
        return error
    return None
