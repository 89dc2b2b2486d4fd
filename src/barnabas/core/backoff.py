"""Backoff: pauses between attempts, which double from a first pause up to a maximum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DOUBLINGS_MAX: Final = 32
"""Keeps the power small after very many failures; any real maximum is reached long before."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Bounds of a pause. Immutable: the caller keeps its present pause, or counts its failures."""

    first_ms: float
    max_ms: float

    def following_ms(self, pause_ms: float) -> float:
        """Pause after one of `pause_ms`."""
        return min(2 * pause_ms, self.max_ms)

    def after_ms(self, failures: int) -> float:
        """Pause when `failures` attempts have failed before the last one."""
        return min(self.first_ms * (1 << min(failures, DOUBLINGS_MAX)), self.max_ms)
