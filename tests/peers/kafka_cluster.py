"""Three nodes of Apache Kafka in one KRaft quorum, in the shape of `tests.support.cluster`.

Every node is broker and controller at once, so the death of the active controller is also the death of
a broker, as it is in a cluster on ZooKeeper. The controller that Metadata names is any live broker;
the real one is the leader of the quorum.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.peers.kafka import START_TIMEOUT_S, KafkaBroker, new_cluster_id
from tests.support import topology, wire
from tests.support.broker_group import BrokerGroup
from tests.support.ports import free_port
from tests.support.waiting import POLL_S

SMALL_HEAP = ("-Xmx384m", "-Xms384m")
DESCRIBE_QUORUM = 55
READY_TIMEOUT_S = 300.0
"""A node that was killed with thousands of partitions recovers them all before it serves."""


class KafkaNode(KafkaBroker):
    """One node; it is ready when it names itself, and all that it needs to, in a metadata answer."""

    @property
    def id(self) -> int:
        return self._node_id

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    def wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_TIMEOUT_S
        while self._process.is_running and time.monotonic() < deadline:
            with contextlib.suppress(OSError, EOFError):
                if self.id in topology.view(self.host, self.port, []).brokers:
                    return
            time.sleep(POLL_S)
        self._process.kill()
        raise RuntimeError(f"node {self.id} of Apache Kafka did not become ready:\n{self.output_text()}")

    def terminate(self) -> None:
        """SIGTERM: a controlled shutdown, awaited. Without a quorum it would never end."""
        assert self._process is not None
        self._process.stop()

    def restart(self) -> None:
        if self.is_running:
            self.terminate()
        self.start()


class KafkaCluster(BrokerGroup[KafkaNode]):
    name = "kafka"

    def controller_id(self) -> int:
        """The leader of the quorum, as any live node tells (DescribeQuorum v0)."""
        topic = b"\x02" + _compact("__cluster_metadata") + b"\x02" + struct.pack(">i", 0) + b"\x00\x00"
        for broker in self.brokers:
            if broker.is_running:
                with contextlib.suppress(OSError, EOFError):
                    leader = _quorum_leader(broker, b"\x00" + topic + b"\x00")
                    if leader is not None:
                        return leader
        return -1


def _compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def _quorum_leader(broker: KafkaNode, rest_of_header_and_body: bytes) -> int | None:
    with wire.WireConnection(broker.host, broker.port, timeout_s=5.0) as connection:
        header = wire.request_header(DESCRIBE_QUORUM, 0, 1)
        connection.send_raw(wire.framed(header + rest_of_header_and_body))
        _, reader = connection.receive()
    _, error, topics = reader.unpack("bhb")
    if error or topics != 2:
        return None
    reader.take(reader.number("b") - 1)
    _, _, error, leader = reader.unpack("bihi")
    return leader if not error and leader >= 0 else None


@contextlib.contextmanager
def kafka_cluster(
    directory: Path,
    nodes: int = 3,
    settings: Mapping[str, object] | None = None,
    *,
    each: Callable[[int], Mapping[str, object]] = lambda _: {},
    heap: Sequence[str] = SMALL_HEAP,
) -> Iterator[KafkaCluster]:
    """All running and registered with each other on entry, gone on exit. `each` gives a node its own."""
    voters = {node: free_port() for node in range(1, nodes + 1)}
    cluster_id = new_cluster_id()
    brokers = [
        KafkaNode(
            directory / f"node-{node}",
            node_id=node,
            voters=voters,
            cluster_id=cluster_id,
            settings={**(settings or {}), **each(node)},
            heap=heap,
        )
        for node in voters
    ]
    running = KafkaCluster(brokers)
    try:
        for broker in brokers:
            broker.prepare()
        running.start()
        running.wait_for(lambda: _all_know_all(brokers), START_TIMEOUT_S, "the nodes know each other")
        yield running
    finally:
        running.kill()


def _all_know_all(brokers: Sequence[KafkaNode]) -> bool:
    try:
        return all(
            len(topology.view(broker.host, broker.port, []).brokers) == len(brokers) for broker in brokers
        )
    except (OSError, EOFError):
        return False
