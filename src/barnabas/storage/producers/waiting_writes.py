"""Writes that wait for verification by the transaction coordinator.

The first write of a transaction waits. `VerificationGuard` shows whether a marker arrived meanwhile: then the
coordinator's answer concerns a transaction that is over.

An unknown producer may begin with any sequence, with one exception. While a write of it waits, or was
returned for a retry, a write with a higher sequence must not come first. It would overtake the retry.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakValueDictionary

from barnabas.core.errors import OutOfOrderSequenceNumber
from barnabas.records.batch import RecordBatch


class VerificationGuard:
    """Guard of writes that wait for verification, valid until a marker of their producer arrives."""

    __slots__ = ("__weakref__",)


class FirstWrite(NamedTuple):
    """Write that waits for verification, of a producer without a batch in the log."""

    epoch: int
    sequence: int


class WaitingWrites:
    """Waiting writes of one log. A rebuilt producer state has none, so a truncation voids every guard."""

    __slots__ = ("_awaited", "_awaited_before", "_guards")

    def __init__(self) -> None:
        self._guards: WeakValueDictionary[int, VerificationGuard] | None = None
        """Guards by producer id, each dropped with its last waiting write. Most logs never have a table."""
        self._awaited: dict[int, FirstWrite] = {}
        self._awaited_before: dict[int, FirstWrite] = {}
        """First writes of unknown producers, by producer id. Those from before the last expiry check are
        separate, so that none is kept for ever."""

    def guard(self, producer_id: int) -> VerificationGuard:
        """Guard to take before the request to the coordinator; waiting writes of a producer share one."""
        if self._guards is None:
            self._guards = WeakValueDictionary()
        found = self._guards.get(producer_id)
        if found is None:
            found = self._guards[producer_id] = VerificationGuard()
        return found

    def stands(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Whether no marker of the producer has arrived since the guard was taken."""
        return self._guards is not None and self._guards.get(producer_id) is guard

    def marker_came(self, producer_id: int) -> None:
        if self._guards is not None:
            self._guards.pop(producer_id, None)

    def await_first(self, producer_id: int, first: FirstWrite) -> None:
        """Record a waiting write of an unknown producer; the newest epoch's lowest sequence goes first."""
        known = self._awaited_first(producer_id)
        if known is None or first.epoch > known.epoch:
            self._awaited[producer_id] = first
        elif first.epoch == known.epoch:
            self._awaited[producer_id] = min(first, known)

    def check_first(self, batch: RecordBatch) -> None:
        """Raise if this first batch of its producer would overtake a waiting one."""
        awaited = self._awaited_first(batch.producer_id)
        if (
            awaited is not None
            and awaited.epoch == batch.producer_epoch
            and batch.base_sequence > awaited.sequence
        ):
            raise OutOfOrderSequenceNumber(
                f"Out of order sequence number for producer {batch.producer_id}: {batch.base_sequence} "
                f"(incoming seq. number), {awaited.sequence} (sequence number that comes first)"
            )

    def first_came(self, producer_id: int) -> None:
        self._awaited.pop(producer_id, None)

    def forget_old(self) -> None:
        self._awaited, self._awaited_before = {}, self._awaited

    def _awaited_first(self, producer_id: int) -> FirstWrite | None:
        return self._awaited.get(producer_id) or self._awaited_before.get(producer_id)
