"""View of a cluster by Metadata v1, decoded by hand: brokers, leaders, replicas.

`view` asks one broker. Another broker may answer differently for a moment, which many tests are about.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.support import wire
from tests.support.waiting import ATTEMPT_S
from tests.support.wire import array, string

ALL_TOPICS = struct.pack(">i", -1)
FIND_COORDINATOR = 10
GROUP, TRANSACTION = 0, 1


@dataclass(frozen=True, slots=True)
class PartitionView:
    error: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def in_sync(self) -> bool:
        return self.leader >= 0 and set(self.isr) == set(self.replicas)


@dataclass(slots=True)
class ClusterView:
    brokers: dict[int, tuple[str, int]] = field(default_factory=dict)
    controller_id: int = -1
    topic_errors: dict[str, int] = field(default_factory=dict)
    partitions: dict[tuple[str, int], PartitionView] = field(default_factory=dict)

    def of(self, topic: str) -> dict[int, PartitionView]:
        return {index: seen for (name, index), seen in self.partitions.items() if name == topic}


def view(host: str, port: int, topics: Sequence[str] | None = None) -> ClusterView:
    """`None` asks for all topics. Raises OSError or EOFError where no broker answers."""
    body = ALL_TOPICS if topics is None else array([string(topic) for topic in topics])
    with wire.WireConnection(host, port, timeout_s=ATTEMPT_S) as connection:
        return _read(connection.ask(wire.METADATA, wire.METADATA_VERSION, body))


def _read(reader: wire.Reader) -> ClusterView:
    seen = ClusterView()
    for _ in range(reader.number("i")):
        node = reader.number("i")
        host = reader.string() or ""
        seen.brokers[node] = (host, reader.number("i"))
        reader.string()
    seen.controller_id = reader.number("i")
    for _ in range(reader.number("i")):
        error = reader.number("h")
        topic = reader.string() or ""
        reader.number("b")
        seen.topic_errors[topic] = error
        for _ in range(reader.number("i")):
            partition_error, index, leader = reader.unpack("hii")
            replicas, isr = _ids(reader), _ids(reader)
            seen.partitions[topic, index] = PartitionView(partition_error, leader, replicas, isr)
    return seen


def _ids(reader: wire.Reader) -> tuple[int, ...]:
    return reader.unpack(f"{reader.number('i')}i")


def create_topics_body(
    topic: str,
    *,
    partitions: int = 1,
    replication_factor: int = 3,
    assignment: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, object] | None = None,
    timeout_ms: int = 60_000,
) -> bytes:
    """CreateTopics v2; an assignment takes the place of the two counts."""
    if assignment:
        partitions = replication_factor = -1
    placed = [
        struct.pack(">i", index) + array([struct.pack(">i", node) for node in nodes])
        for index, nodes in (assignment or {}).items()
    ]
    rows = array([string(key) + string(str(value)) for key, value in (configs or {}).items()])
    row = string(topic) + struct.pack(">ih", partitions, replication_factor) + array(placed) + rows
    return array([row]) + struct.pack(">ib", timeout_ms, 0)


def created(reader: wire.Reader) -> int:
    """The error code in the answer to `create_topics_body`."""
    reader.unpack("ii")
    reader.string()
    return reader.number("h")


def coordinator(host: str, port: int, key: str, kind: int = GROUP) -> tuple[int, int]:
    """Error code and node (FindCoordinator v1)."""
    with wire.WireConnection(host, port, timeout_s=ATTEMPT_S) as connection:
        reader = connection.ask(FIND_COORDINATOR, 1, string(key) + struct.pack(">b", kind))
    _, error = reader.unpack("ih")
    reader.string()
    return error, reader.number("i")
