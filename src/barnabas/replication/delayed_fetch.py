"""A fetch that waits until there is enough to read.

It is finished when

- A. a partition of it is no longer led here, or its epoch changed;
- B. a partition of it is gone;
- C. the reader's offset is no longer at the tail (a segment rolled under it, the log was
  truncated, or its records were deleted): what can be read now will not grow;
- D. the bytes that can be read reach `min_bytes`;

or when the reader's patience ends. Then everything is read once more, and that is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from barnabas.core.errors import KafkaError
from barnabas.purgatory.purgatory import DelayedOperation
from barnabas.replication.fetching import FetchParams, FetchPartition, PartitionRead

if TYPE_CHECKING:
    from barnabas.replication.replica_reading import ReadableReplicas

ASKS_WORTH_AN_INDEX = 8


class DelayedFetch(DelayedOperation):
    __slots__ = ("_asks", "_by_key", "_is_incremental", "_params", "_replicas", "_respond")

    def __init__(
        self,
        replicas: ReadableReplicas,
        params: FetchParams,
        asks: Sequence[FetchPartition],
        respond: Callable[[list[PartitionRead]], None],
        *,
        is_incremental: bool = False,
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._is_incremental = is_incremental
        self._by_key: dict[Hashable, FetchPartition] | None = None
        self._replicas = replicas
        self._params = params
        self._asks = asks
        self._respond = respond

    def check(self, key: Hashable) -> bool:
        """A reader of many partitions that waits for one byte looks only at the one with news."""
        if self._params.min_bytes > 1 or len(self._asks) < ASKS_WORTH_AN_INDEX:
            return self.try_complete()
        if self._by_key is None:
            self._by_key = {ask.topic_partition: ask for ask in self._asks}
        return self._try_complete((self._by_key[key],))

    def try_complete(self) -> bool:
        return self._try_complete(self._asks)

    def _try_complete(self, asks: Sequence[FetchPartition]) -> bool:
        params = self._params
        readable_bytes = 0
        for ask in asks:
            try:
                partition = self._replicas.partition(*ask.topic_partition)
                partition.check_readable(params, ask.current_leader_epoch)
            except KafkaError:
                return self.force_complete()
            end_offset = partition.readable_end(params)
            log = partition.log
            if end_offset <= ask.fetch_offset:
                if ask.fetch_offset > log.log_end_offset:
                    return self.force_complete()
                continue  # beyond the last stable offset, say: nothing to read yet, so it waits
            if params.is_from_follower and self._replicas.is_held(partition, params):
                continue
            if params.min_bytes <= 1:
                return self.force_complete()
            if ask.fetch_offset < max(log.segments.active.base_offset, log.log_start_offset):
                return self.force_complete()
            readable = log.read(ask.fetch_offset, ask.max_bytes, upper_offset=end_offset, min_one_batch=False)
            readable_bytes += readable.size_bytes
            if readable_bytes >= params.min_bytes:
                return self.force_complete()
        return False

    def on_complete(self) -> None:
        self._respond(
            self._replicas.read(
                self._params, self._asks, is_first_try=False, is_incremental=self._is_incremental
            )
        )
