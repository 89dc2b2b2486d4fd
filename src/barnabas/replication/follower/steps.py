"""What a follower wants done next (`replica_fetcher`), by whoever drives it."""

from __future__ import annotations

from typing import Any, NamedTuple

from barnabas.core.ids import BrokerId
from barnabas.protocol.schema import Message
from barnabas.storage.log.flush_state import CutWork


class Connect(NamedTuple):
    """Open a connection to the broker."""

    source: BrokerId


class Send(NamedTuple):
    """Send the request, and bring its answer."""

    request: Message
    response_class: type[Any]
    version: int


class Sync(NamedTuple):
    """Make these cuts of logs last."""

    cuts: tuple[CutWork | None, ...]

    def run(self) -> list[OSError | None]:
        """Off the loop: what became of each."""
        return [_outcome(cut) for cut in self.cuts]


class Rest(NamedTuple):
    """Wait."""

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
