"""Rows that the console shows, from the client library or from the broker itself.

None means "not known" and is shown as a dash; it is never an estimate. Times are milliseconds since the
epoch, sizes are bytes, rates are per second over the last seconds. Every class is plain data, so that it
crosses a socket as JSON and stands under `/api` as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Row = TypeVar("Row")

TopicSort = Literal["name", "partitions", "records", "size", "in", "out"]
GroupSort = Literal["name", "state", "members", "topics", "lag", "time"]


@dataclass(frozen=True, slots=True)
class TopicQuery:
    search: str = ""
    """Part of the name, in any case."""
    sort: TopicSort = "name"
    descending: bool = False
    offset: int = 0
    limit: int = 50
    include_internal: bool = False


@dataclass(frozen=True, slots=True)
class GroupQuery:
    search: str = ""
    sort: GroupSort = "name"
    descending: bool = False
    offset: int = 0
    limit: int = 50
    topic: str = ""
    """Only groups that have committed offsets, or members, in this topic."""
    with_members: bool = True
    """Whether members are counted, where that takes a question for each group."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    rows: tuple[Row, ...]
    total: int
    """Rows that match, on all pages."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Rates. The broker knows all of them; a client knows the records from the movement of end offsets."""

    records_in: float | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """Latency of one API in milliseconds, over the last minute or so."""

    api: str
    count: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class BrokerRow:
    broker_id: int
    address: str
    rack: str | None
    is_controller: bool
    is_fenced: bool
    leaders: int
    """Partitions that the broker leads."""
    replicas: int
    size_bytes: int | None
    version: str | None = None
    traffic: Traffic = Traffic()
    connections: int | None = None
    memory_bytes: int | None = None
    cpu_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    at_ms: int
    cluster_id: str
    controller_id: int
    """-1 without one."""
    brokers: tuple[BrokerRow, ...]
    topics: int
    """Without internal ones, whose partitions count all the same."""
    partitions: int
    under_replicated: int
    offline: int
    groups: int
    traffic: Traffic = Traffic()
    latencies: tuple[Latency, ...] = ()
    size_bytes: int | None = None
    lag_records: int | None = None
    """Sum over all groups."""
    store: str | None = None
    """Where the metadata lives: "embedded", "zookeeper". None for a foreign Kafka."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    name: str
    topic_id: str
    is_internal: bool
    partitions: int
    replication_factor: int
    under_replicated: int
    offline: int
    records: int | None
    """Sum of end minus start offsets. Compaction makes it an upper bound."""
    size_bytes: int | None
    """Of the leaders' replicas."""
    traffic: Traffic = Traffic()
    groups: int | None = None
    cleanup_policy: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionRow:
    partition: int
    leader_id: int
    """-1 without one."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    start_offset: int | None
    end_offset: int | None
    """High watermark: what consumers see."""
    size_bytes: int | None
    last_stable_offset: int | None = None


@dataclass(frozen=True, slots=True)
class TopicDetail:
    row: TopicRow
    partitions: tuple[PartitionRow, ...]


@dataclass(frozen=True, slots=True)
class MemberRow:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]
    """Topic and partition."""


@dataclass(frozen=True, slots=True)
class GroupOffsetRow:
    topic: str
    partition: int
    committed: int | None
    start_offset: int | None
    end_offset: int | None
    lag_records: int | None
    lag_ms: int | None
    """Age of the oldest record that the group has not committed; 0 when it has read everything."""
    member_id: str | None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupRow:
    group_id: str
    state: str
    kind: str
    """"classic", "consumer" (KIP-848), "share", or another protocol type."""
    members: int | None
    topics: int | None
    lag_records: int | None
    lag_ms: int | None
    """The largest of its partitions."""
    coordinator_id: int | None = None


@dataclass(frozen=True, slots=True)
class GroupDetail:
    row: GroupRow
    assignor: str
    members: tuple[MemberRow, ...]
    offsets: tuple[GroupOffsetRow, ...]
    """By topic and partition: committed ones, and those assigned to a member without a commit."""
    more_offsets: int = 0
    """Of a group with very many partitions: those that are left out."""


@dataclass(frozen=True, slots=True)
class SegmentRow:
    base_offset: int
    next_offset: int
    """Offset after the last record of the segment."""
    size_bytes: int
    index_bytes: int | None
    time_index_bytes: int | None
    transaction_index_bytes: int | None
    first_timestamp_ms: int | None
    largest_timestamp_ms: int | None
    is_active: bool
    index_entries: tuple[tuple[int, int], ...] = ()
    """Offset and byte position of some entries of the offset index, evenly chosen; at most a hundred."""


@dataclass(frozen=True, slots=True)
class EpochRow:
    """The leader epoch that begins at an offset."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class FollowerRow:
    broker_id: int
    end_offset: int | None
    is_in_sync: bool
    caught_up_ms: int | None
    """Time at which the follower last had everything."""


@dataclass(frozen=True, slots=True)
class LogPicture:
    """One partition's log as its leader sees it. Against a foreign Kafka, only the offsets are known."""

    topic: str
    partition: int
    leader_id: int
    leader_epoch: int
    start_offset: int
    last_stable_offset: int
    high_watermark: int
    end_offset: int | None
    """Log end offset; above the high watermark while followers catch up."""
    recovery_point: int | None
    size_bytes: int | None
    segments: tuple[SegmentRow, ...] = ()
    epochs: tuple[EpochRow, ...] = ()
    followers: tuple[FollowerRow, ...] = ()
    open_transactions: tuple[tuple[int, int], ...] = ()
    """Producer id and first offset of each open transaction."""
    aborted_transactions: tuple[tuple[int, int, int], ...] = ()
    """Producer id, first and last offset of the newest aborted transactions; at most a hundred."""
    committed: tuple[tuple[str, int], ...] = ()
    """Group and committed offset, of the groups that read this partition."""


@dataclass(frozen=True, slots=True)
class TransactionRow:
    transactional_id: str | None
    """None for a hanging one, which no coordinator knows."""
    producer_id: int
    producer_epoch: int | None
    state: str
    coordinator_id: int | None
    timeout_ms: int | None
    started_ms: int | None
    partitions: tuple[tuple[str, int], ...]
    is_hanging: bool = False
    start_offset: int | None = None
    coordinator_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ClientMetric:
    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ClientRow:
    """Metrics that a client reports (KIP-714)."""

    instance_id: str
    client_id: str
    host: str
    user: str
    software: str
    last_push_ms: int
    metrics: tuple[ClientMetric, ...] = ()
