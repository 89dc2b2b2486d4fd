"""Ledger of one partition: which of the records that were taken are done.

Records are taken in the order of offsets, and finish in any order.

- `committable` is the first record that is not done; with none, the position after the last one taken.
- Everything between two records that are not done is done: the finished runs above `committable`, which go
  into the metadata of the commit (`finished_runs`). Gaps between offsets (markers of transactions,
  compaction) count with the records around them.
- Runs that a previous owner had finished are skipped when they are taken, and kept until then.

The number of records that are taken and not done is bounded, which bounds the runs: each of them ends one run
at most. So the metadata always fits into a commit, however long one record takes, and however many others
finish meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.client.processing.core.finished_runs import decode_runs, encode_runs

RUNS_MAX: Final = 320
"""Two numbers each, of at most four bytes below 2^28 records, in base64: 3,414 of the 4,096 bytes that a
coordinator takes by default."""
UNFINISHED_MAX: Final = 256
UNFINISHED_MIN: Final = 48
"""Always allowed, so that a ledger with very many runs moves on; with them the text has 3,926 bytes."""


class OffsetLedger:
    def __init__(self, position: int, metadata: str = "") -> None:
        """`position` is the committed offset, and `metadata` its text."""
        self._next = position
        self._unfinished: dict[int, None] = {}
        """Offsets that are taken and not done, in order."""
        self._earlier = decode_runs(position, metadata)[::-1]
        """Runs that a previous owner had finished, the first one last."""

    @property
    def committable(self) -> int:
        first = next(iter(self._unfinished), None)
        if first is not None:
            return first
        if self._earlier and self._earlier[-1][0] <= self._next:
            return self._earlier[-1][1]
        return self._next

    @property
    def unfinished(self) -> int:
        return len(self._unfinished)

    @property
    def room(self) -> int:
        """Records that may be taken before some are done."""
        limit = min(UNFINISHED_MAX, max(UNFINISHED_MIN, RUNS_MAX - len(self._earlier)))
        return max(0, limit - len(self._unfinished))

    def follows(self, offset: int) -> bool:
        """True when `offset` comes after the records that were taken: the position did not jump back."""
        return offset >= self._next

    def take(self, offset: int) -> bool:
        """Take a record; False when a previous owner had finished it."""
        assert offset >= self._next, "records are taken in order"
        self._pass(offset)
        if self._earlier and self._earlier[-1][0] <= offset:
            self._next = max(self._next, offset + 1)
            return False
        self._next = offset + 1
        self._unfinished[offset] = None
        return True

    def moved_to(self, position: int) -> None:
        """The position moved past a gap at the end of a batch."""
        self._next = max(self._next, position)
        self._pass(self._next)

    def cut(self, offset: int) -> OffsetLedger:
        """Ledger for a position that jumped back to `offset`: what is not done below it stays so."""
        ledger = OffsetLedger(offset)
        ledger._unfinished = {each: None for each in self._unfinished if each < offset}
        return ledger

    def finish(self, offset: int) -> None:
        """A record is done."""
        del self._unfinished[offset]

    def metadata(self) -> str:
        return encode_runs(self.committable, self._runs())

    def _pass(self, offset: int) -> None:
        """Forget earlier runs below `offset`: the records around them were taken."""
        while self._earlier and self._earlier[-1][1] <= offset:
            self._earlier.pop()

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Finished runs above `committable`."""
        start = self.committable
        before = -1
        for offset in self._unfinished:
            if before >= 0 and offset > before + 1:
                yield before + 1, offset
            before = offset
        tail = (before + 1, self._next) if before >= 0 else (start, start)
        for first, end in reversed(self._earlier):
            if end <= start:
                continue
            if first <= tail[1]:
                tail = (tail[0], max(end, tail[1]))
                continue
            if tail[0] < tail[1]:
                yield tail
            tail = (first, end)
        if tail[0] < tail[1] and tail[0] > start:
            yield tail
