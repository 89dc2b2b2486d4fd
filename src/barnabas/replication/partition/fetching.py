"""Parameters and results of a fetch: `FetchParams`, `PartitionFetch`, `PartitionRead`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.core.errors import NONE
from barnabas.core.ids import NO_EPOCH, NO_OFFSET, ZERO_UUID, TopicPartition, Uuid
from barnabas.core.regions import FileRegion

if TYPE_CHECKING:
    from barnabas.storage.segment.transaction_index import AbortedTransaction

NO_REPLICA: Final = -1


class PartitionFetch:
    """Fetch of one partition; a fetch session keeps these between requests. The topic name is empty while the
    reader's topic id is unknown here.

    `sent_high_watermark` and `sent_log_start_offset` remember the last response. An incremental response
    leaves out partitions without news.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic: str | None,
        topic_id: Uuid,
        partition: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        log_start_offset: int = NO_OFFSET,
    ) -> None:
        self.topic_partition = TopicPartition(topic or "", partition)
        self.topic_id = topic_id
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.sent_high_watermark = NO_OFFSET
        self.sent_log_start_offset = NO_OFFSET

    @property
    def session_key(self) -> tuple[Uuid | str, int]:
        """Key in a session: the topic id if the reader uses ids, the name otherwise."""
        topic, partition = self.topic_partition
        return (topic if self.topic_id == ZERO_UUID else self.topic_id), partition


class PartitionRead:
    """Result of one fetched partition: an error code, or a region of one segment with its offsets."""

    __slots__ = (
        "aborted_transactions",
        "diverging_epoch",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred_read_replica",
        "records",
    )

    def __init__(
        self,
        error_code: int = NONE,
        high_watermark: int = NO_OFFSET,
        last_stable_offset: int = NO_OFFSET,
        log_start_offset: int = NO_OFFSET,
        records: FileRegion | None = None,
        aborted_transactions: list[AbortedTransaction] | None = None,
        diverging_epoch: tuple[int, int] | None = None,
    ) -> None:
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.aborted_transactions = aborted_transactions
        self.diverging_epoch = diverging_epoch
        self.preferred_read_replica = NO_REPLICA


def is_enough(reads: list[PartitionRead], min_bytes: int) -> bool:
    """Whether a fetch has its bytes, or a result that cannot wait."""
    total_bytes = 0
    for read in reads:
        if read.error_code or read.diverging_epoch is not None or read.preferred_read_replica != NO_REPLICA:
            return True
        if read.records is not None:
            total_bytes += read.records.length
    return total_bytes >= min_bytes


class FetchParams:
    """Parameters of one fetch, common to all its partitions."""

    __slots__ = (
        "broker_epoch",
        "is_from_follower",
        "max_bytes",
        "max_wait_ms",
        "may_read_from_follower",
        "min_bytes",
        "rack_id",
        "read_committed",
        "replica_id",
    )

    def __init__(
        self,
        replica_id: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        *,
        read_committed: bool,
        broker_epoch: int = NO_EPOCH,
        rack_id: str = "",
        may_read_from_follower: bool = False,
    ) -> None:
        self.replica_id = replica_id
        self.is_from_follower = replica_id >= 0
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.read_committed = read_committed
        self.broker_epoch = broker_epoch
        """Broker epoch of a follower."""
        self.rack_id = rack_id
        self.may_read_from_follower = may_read_from_follower and not self.is_from_follower
