"""A DeleteRecords request that waits until every replica has moved the start of its log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.core.errors import NONE, NotLeaderOrFollower, RequestTimedOut
from barnabas.purgatory.purgatory import DelayedOperation
from barnabas.replication.partition import Partition


class PendingDeletion:
    """One partition of the request; `answer` is the part of the response that it fills in."""

    __slots__ = ("answer", "is_done", "partition", "start_offset")

    def __init__(self, partition: Partition, start_offset: int, answer: Any) -> None:
        self.partition = partition
        self.start_offset = start_offset
        self.answer = answer
        self.is_done = False
        # The answer in case that time runs out first.
        answer.error_code = RequestTimedOut.code


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
                deletion.answer.error_code = NotLeaderOrFollower.code
                deletion.is_done = True
            elif low_watermark >= deletion.start_offset:
                deletion.answer.error_code = NONE
                deletion.answer.low_watermark = low_watermark
                deletion.is_done = True
            else:
                waiting = True
        return False if waiting else self.force_complete()

    def on_complete(self) -> None:
        self._respond()
