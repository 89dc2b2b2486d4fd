"""Leader epoch cache: the first offset of each leader epoch.

The cache is a sorted list of `(epoch, start offset)`. A follower asks the leader for the end offset of an
epoch and truncates its log there (KIP-101, KIP-279). So no truncation depends on the high watermark.

The list can be derived from the batches. So a thread writes it to `leader-epoch-checkpoint`: with every flush
and checkpoint, before the recovery point passes the batches that it covers, and at close. Recovery rebuilds
the rest.
"""

from __future__ import annotations

import logging
from bisect import bisect_right

from barnabas.core.files import Files
from barnabas.core.ids import NO_EPOCH, NO_OFFSET
from barnabas.storage.files.checkpoints import CorruptCheckpoint, parse_epochs, render_epochs
from barnabas.storage.files.names import LEADER_EPOCHS

logger = logging.getLogger(__name__)


class LeaderEpochCache:
    __slots__ = ("_epochs", "_starts", "_written_version", "latest_epoch", "version")

    def __init__(self, entries: list[tuple[int, int]]) -> None:
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
        self.latest_epoch = self._epochs[-1] if entries else NO_EPOCH
        self.version = 0
        """Number of changes."""
        self._written_version = 0

    @property
    def is_dirty(self) -> bool:
        """Whether the checkpoint file lacks changes."""
        return self.version != self._written_version

    def written(self, version: int) -> None:
        """Record that the checkpoint file holds the cache of this version."""
        self._written_version = max(self._written_version, version)

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def earliest(self) -> tuple[int, int] | None:
        return (self._epochs[0], self._starts[0]) if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Assign `epoch` to the batches from `start_offset` on; drop entries that contradict it."""
        assert epoch >= 0
        assert start_offset >= 0
        epochs, starts = self._epochs, self._starts
        if epochs and epoch == epochs[-1] and start_offset >= starts[-1]:
            return
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start_offset)
        self._changed()

    def prepend(self, earlier: list[tuple[int, int]]) -> None:
        """Add entries below all others. A known epoch gets its true start."""
        if earlier:
            known = self.entries
            if known and known[0][0] == earlier[-1][0]:
                del known[0]
            self._epochs = [epoch for epoch, _ in (*earlier, *known)]
            self._starts = [start for _, start in (*earlier, *known)]
            self._changed()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """`(epoch, end offset)` of the largest known epoch up to `epoch`; both undefined without one."""
        if epoch == NO_EPOCH or not self._epochs:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return NO_EPOCH, NO_OFFSET
        # The records below the first epoch are deleted: the follower starts where this log starts.
        found = self._epochs[above - 1] if above else epoch
        return found, self._starts[above]

    def epoch_for_offset(self, offset: int) -> int:
        """Epoch of the batch at `offset`; NO_EPOCH before the first known one."""
        above = bisect_right(self._starts, offset)
        return self._epochs[above - 1] if above else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop epochs that start at or after `end_offset`."""
        kept = len(self._starts)
        while kept and self._starts[kept - 1] >= end_offset:
            kept -= 1
        if kept < len(self._starts):
            del self._epochs[kept:], self._starts[kept:]
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that ended before `start_offset`; the epoch that covers it now starts there."""
        last_before = bisect_right(self._starts, start_offset) - 1
        if last_before < 0 or (last_before == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:last_before], self._starts[:last_before]
        self._starts[0] = start_offset
        self._changed()

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._changed()

    def render(self) -> bytes:
        return render_epochs(self.entries)

    def _changed(self) -> None:
        self.latest_epoch = self._epochs[-1] if self._epochs else NO_EPOCH
        self.version += 1


def read_leader_epochs(files: Files, directory: str) -> LeaderEpochCache:
    """Read the epoch checkpoint; an empty cache if the file is missing or damaged."""
    path = f"{directory}/{LEADER_EPOCHS}"
    if not files.exists(path):
        return LeaderEpochCache([])
    try:
        found = sorted(parse_epochs(files.read(path)))
    except CorruptCheckpoint as error:
        logger.warning("ignoring damaged leader epoch checkpoint %s: %s", path, error)
        return LeaderEpochCache([])
    cache = LeaderEpochCache([])
    for epoch, start_offset in found:
        cache.assign(epoch, start_offset)
    cache.written(cache.version)
    return cache
