"""DeleteRecords request that waits until every replica has moved its log start offset."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.core.errors import NONE, NotLeaderOrFollower, RequestTimedOut
from barnabas.core.ids import NO_OFFSET
from barnabas.purgatory.purgatory import DelayedOperation
from barnabas.replication.partition.partition import Partition


class PendingDeletion:
    """One partition of the request, and its outcome once the request is complete."""

    __slots__ = ("error_code", "is_done", "low_watermark", "partition", "start_offset")

    def __init__(self, partition: Partition, start_offset: int) -> None:
        self.partition = partition
        self.start_offset = start_offset
        self.is_done = False
        self.error_code = RequestTimedOut.code
        """NONE once every replica has moved; REQUEST_TIMED_OUT if the timeout comes first."""
        self.low_watermark = NO_OFFSET


class DelayedDeleteRecords(DelayedOperation):
    __slots__ = ("_pending", "_respond")

    def __init__(
        self, timeout_ms: float, pending: Sequence[PendingDeletion], respond: Callable[[], None]
    ) -> None:
        super().__init__(timeout_ms)
        self._pending = pending
        self._respond = respond

    def try_complete(self) -> bool:
        waiting = False
        for deletion in self._pending:
            if deletion.is_done:
                continue
            low_watermark = deletion.partition.low_watermark
            leadership = deletion.partition.leadership
            if not leadership.is_leader or not leadership.has_lease:
                deletion.error_code = NotLeaderOrFollower.code
                deletion.is_done = True
            elif low_watermark >= deletion.start_offset:
                deletion.error_code = NONE
                deletion.low_watermark = low_watermark
                deletion.is_done = True
            else:
                waiting = True
        return False if waiting else self.force_complete()

    def on_complete(self) -> None:
        self._respond()
