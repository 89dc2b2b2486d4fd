"""A cluster of either kind: Barnabas on ZooKeeper, or Apache Kafka with its own quorum.

    with any_cluster("kafka", tmp_path, session_timeout_ms=6_000) as three:
        three.create_topic("letters", partitions=6)
        three.broker(three.leader("letters")).kill()

One test or measurement serves both. `session_timeout_ms` is how long a silent broker is believed alive:
ZooKeeper's session here, the broker's session with the controller there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from tests.peers import kafka
from tests.peers.kafka_cluster import SMALL_HEAP, kafka_cluster
from tests.support import topology, wire
from tests.support.broker import Broker
from tests.support.cluster import Cluster, ClusterBroker
from tests.support.zookeeper import running_zookeeper

RETRIED_ERRORS = frozenset({5, 7, 38, 41, 72})
"""A cluster that has only just come up may not have seen all of its brokers yet."""
TOPIC_TIMEOUT_S = 120.0
IN_SYNC_TIMEOUT_S = 180.0


class Member(Broker, Protocol):
    """A broker that is one of several."""

    @property
    def id(self) -> int: ...
    @property
    def is_running(self) -> bool: ...
    def terminate(self) -> None: ...
    def restart(self) -> None: ...


class Brokers(Protocol):
    """Common part of `tests.support.cluster.Cluster` and `tests.peers.kafka_cluster.KafkaCluster`."""

    @property
    def brokers(self) -> Sequence[Member]: ...
    @property
    def bootstrap(self) -> str: ...
    def broker(self, broker_id: int) -> Member: ...
    def kill(self) -> None: ...
    def wait_for(self, predicate: Callable[[], object], timeout_s: float = ..., what: str = ...) -> None: ...
    def output_text(self) -> str: ...


class AnyCluster:
    """The brokers, and the requests that work with either kind."""

    def __init__(self, name: str, brokers: Brokers, controller_id: Callable[[], int]) -> None:
        self.name = name
        self._brokers = brokers
        self.controller_id = controller_id
        self.brokers = brokers.brokers
        self.bootstrap = brokers.bootstrap
        self.broker = brokers.broker
        self.wait_for = brokers.wait_for
        self.output_text = brokers.output_text

    @property
    def live(self) -> list[Member]:
        return [broker for broker in self.brokers if broker.is_running]

    def view(self, topics: Sequence[str] | None = None) -> topology.ClusterView:
        """As the first live broker that answers sees it."""
        for broker in self.live:
            with suppress(OSError, EOFError):
                return topology.view(broker.host, broker.port, topics)
        raise ConnectionError("no broker answers")

    def leader(self, topic: str, partition: int = 0) -> int:
        return self.view([topic]).of(topic)[partition].leader

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        replication_factor: int = 3,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, object] | None = None,
        in_sync: bool = True,
    ) -> None:
        """Created, led, known to every live broker and, by default, all in sync."""
        body = topology.create_topics_body(
            topic,
            partitions=partitions,
            replication_factor=replication_factor,
            assignment=assignment,
            configs=configs,
        )
        errors: list[int] = []

        def is_made() -> bool:
            errors.append(self._create(body))
            return errors[-1] not in RETRIED_ERRORS

        self.wait_for(is_made, TOPIC_TIMEOUT_S, f"{topic} is made")
        assert errors[-1] in ((0, 36) if len(errors) > 1 else (0,)), f"error {errors[-1]} creating {topic}"
        if in_sync:
            self.wait_in_sync([topic], len(assignment) if assignment else partitions)

    def _create(self, body: bytes) -> int:
        """Asks the controller where there is one to ask; Apache Kafka forwards."""
        controller = self.view([]).controller_id
        live = {broker.id: broker for broker in self.live}
        broker = live.get(controller, next(iter(live.values())))
        with wire.WireConnection(broker.host, broker.port, timeout_s=TOPIC_TIMEOUT_S) as connection:
            return topology.created(connection.ask(wire.CREATE_TOPICS, 2, body))

    def wait_in_sync(
        self, topics: Sequence[str], partitions: int | None = None, timeout_s: float = IN_SYNC_TIMEOUT_S
    ) -> None:
        """Every live broker says of each partition that all its replicas are in sync."""

        def all_agree() -> bool:
            for broker in self.live:
                try:
                    seen = topology.view(broker.host, broker.port, topics)
                except (OSError, EOFError):
                    return False
                if any(seen.topic_errors.values()) or not seen.partitions:
                    return False
                if partitions is not None and len(seen.partitions) != partitions * len(topics):
                    return False
                if not all(each.in_sync for each in seen.partitions.values()):
                    return False
            return True

        self.wait_for(all_agree, timeout_s, f"{', '.join(topics)} in sync")


@contextmanager
def any_cluster(
    name: str,
    directory: Path,
    settings: Mapping[str, object] | None = None,
    *,
    session_timeout_ms: int = 2_000,
    nodes: int = 3,
    each: Callable[[int], Mapping[str, object]] = lambda _: {},
    heap: Sequence[str] = SMALL_HEAP,
    code: Path | None = None,
) -> Iterator[AnyCluster]:
    """Of Apache Kafka if `name` is "kafka", and ours otherwise; ids are 1 to `nodes`.

    `each` gives a broker settings of its own; `code` is where ours are, if not in this source."""
    if name == "kafka":
        kafka.require_kafka()
        sessions = {
            "broker.session.timeout.ms": session_timeout_ms,
            "broker.heartbeat.interval.ms": min(2_000, session_timeout_ms // 4),
        }
        common = {**sessions, **(settings or {})}
        with kafka_cluster(directory, nodes, common, each=each, heap=heap) as peers:
            yield AnyCluster(name, peers, peers.controller_id)
        return
    with running_zookeeper(directory) as zookeeper:
        common = {"zookeeper.session.timeout.ms": session_timeout_ms, **(settings or {})}
        brokers = [
            ClusterBroker(
                node, directory / f"broker-{node}", zookeeper.connect, {**common, **each(node)}, code=code
            )
            for node in range(1, nodes + 1)
        ]
        ours = Cluster(brokers, zookeeper.connect)
        try:
            ours.start()
            found = AnyCluster(name, ours, lambda: found.view([]).controller_id)
            ours.wait_for(lambda: len(found.view([]).brokers) == nodes, what="all brokers known")
            yield found
        finally:
            ours.kill()
