"""Fetch request that waits until there is enough to read.

It is complete when

- A. a partition of it is no longer led here, or its epoch changed;
- B. a partition of it is gone;
- C. the fetch offset is no longer at the tail (a segment rolled under it, the log was truncated, or its
  records were deleted): the readable bytes will not grow;
- D. the readable bytes reach `min_bytes`;

or when `max.wait.ms` is over. Then everything is read once more, and that is the response.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from barnabas.core.errors import KafkaError
from barnabas.purgatory.purgatory import DelayedOperation
from barnabas.replication.leader.fetch_session import FetchSession
from barnabas.replication.leader.partition_reading import readable_end
from barnabas.replication.leader.replica_reader import ReplicaReader
from barnabas.replication.partition.fetching import FetchParams, PartitionFetch, PartitionRead

FETCHES_WORTH_AN_INDEX = 8


class DelayedFetch(DelayedOperation):
    __slots__ = ("_by_key", "_fetches", "_params", "_reader", "_respond")

    def __init__(
        self,
        reader: ReplicaReader,
        params: FetchParams,
        fetches: Sequence[PartitionFetch],
        respond: Callable[[list[PartitionRead]], None],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._by_key: dict[Hashable, PartitionFetch] | None = None
        self._reader = reader
        self._params = params
        self._fetches = fetches
        self._respond = respond

    def check(self, key: Hashable) -> bool:
        """Check only the changed partition of a reader that waits for one byte."""
        if self._params.min_bytes > 1 or len(self._fetches) < FETCHES_WORTH_AN_INDEX:
            return self.try_complete()
        if self._by_key is None:
            self._by_key = {fetch.topic_partition: fetch for fetch in self._fetches}
        return is_over(self._reader, self._params, (self._by_key[key],)) and self.force_complete()

    def try_complete(self) -> bool:
        return is_over(self._reader, self._params, self._fetches) and self.force_complete()

    def on_complete(self) -> None:
        self._respond(self._reader.read(self._params, self._fetches, is_first_try=False))


class DelayedFollowerFetch(DelayedOperation):
    """Fetch of a follower's session that waits; its key is the session. Everything present at the start of
    the wait has been read. So a fetch that waits for any byte looks only at partitions marked since."""

    __slots__ = ("_params", "_reader", "_respond", "_session")

    def __init__(
        self,
        reader: ReplicaReader,
        params: FetchParams,
        session: FetchSession,
        respond: Callable[[list[PartitionFetch], list[PartitionRead]], None],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._reader = reader
        self._params = params
        self._session = session
        self._respond = respond

    def try_complete(self) -> bool:
        session = self._session
        fetches = (
            session.newly_changed_partitions()
            if self._params.min_bytes <= 1
            else session.changed_partitions()
        )
        return is_over(self._reader, self._params, fetches) and self.force_complete()

    def on_complete(self) -> None:
        fetches = self._reader.due(self._params, self._session)
        self._respond(fetches, self._reader.read(self._params, fetches, is_first_try=False))


def is_over(reader: ReplicaReader, params: FetchParams, fetches: Sequence[PartitionFetch]) -> bool:
    """Whether a fetch of these partitions has nothing left to wait for."""
    readable_bytes = 0
    for fetch in fetches:
        try:
            partition = reader.table.partition(*fetch.topic_partition)
            leadership, epoch = partition.leadership, fetch.current_leader_epoch
            if not leadership.is_leader or epoch != leadership.leader_epoch:
                leadership.check_readable(params, epoch)
        except KafkaError:
            return True
        log = partition.log
        end_offset = readable_end(log, params)
        if end_offset <= fetch.fetch_offset:
            if fetch.fetch_offset > log.log_end_offset:
                return True
            continue  # beyond the last stable offset, say: nothing to read yet, so it waits
        if params.is_from_follower and reader.is_held(partition, params):
            continue
        if params.min_bytes <= 1:
            return True
        if fetch.fetch_offset < max(log.segments.active.base_offset, log.log_start_offset):
            return True
        readable = log.read(fetch.fetch_offset, fetch.max_bytes, upper_offset=end_offset, min_one_batch=False)
        readable_bytes += readable.size_bytes
        if readable_bytes >= params.min_bytes:
            return True
    return False
