"""Writes that wait until the transaction coordinator has answered for them.

The first write of a transaction does. `VerificationGuard` tells whether a marker came meanwhile: then the
answer is about a transaction that is over. A write of a producer of whom nothing is known may begin with any
sequence, but not with one behind a write that waited and was sent back to come again: it would take its
place.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakValueDictionary

from barnabas.core.errors import OutOfOrderSequenceNumber
from barnabas.records.batch import RecordBatch


class VerificationGuard:
    """Held by writes that wait for the coordinator's word; it stands until their producer's marker comes."""

    __slots__ = ("__weakref__",)


class FirstWrite(NamedTuple):
    """A write that waits for the coordinator's word, of a producer that has written nothing yet."""

    epoch: int
    sequence: int


class WaitingWrites:
    """Of one log. A state that is built anew has none, so what waits across a truncation is not verified any
    more."""

    __slots__ = ("_awaited", "_awaited_before", "_guards")

    def __init__(self) -> None:
        self._guards: WeakValueDictionary[int, VerificationGuard] | None = None
        """By producer id; gone with the last write that waits. Most logs never have one, and no table
        either."""
        self._awaited: dict[int, FirstWrite] = {}
        self._awaited_before: dict[int, FirstWrite] = {}
        """By producer id, of producers of whom nothing is known; those from before the last look at what has
        expired apart, so that none is kept for ever."""

    def guard(self, producer_id: int) -> VerificationGuard:
        """To be taken before the coordinator is asked; all writes of the producer that wait share one."""
        if self._guards is None:
            self._guards = WeakValueDictionary()
        found = self._guards.get(producer_id)
        if found is None:
            found = self._guards[producer_id] = VerificationGuard()
        return found

    def stands(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Whether no marker of the producer has come since the guard was taken."""
        return self._guards is not None and self._guards.get(producer_id) is guard

    def marker_came(self, producer_id: int) -> None:
        if self._guards is not None:
            self._guards.pop(producer_id, None)

    def await_first(self, producer_id: int, first: FirstWrite) -> None:
        """The write of a producer of whom nothing is known waits to be verified. The lowest of them that the
        newest epoch sent must come first."""
        known = self._awaited_first(producer_id)
        if known is None or first.epoch > known.epoch:
            self._awaited[producer_id] = first
        elif first.epoch == known.epoch:
            self._awaited[producer_id] = min(first, known)

    def check_first(self, batch: RecordBatch) -> None:
        """Raise if this, the first batch of its producer here, would take the place of one that waits."""
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
