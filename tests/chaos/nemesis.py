"""Faults of a run. A fault strikes, lasts a while, and is healed.

A target is chosen by its role at that moment (leader, controller), with the run's own random numbers. So a
seed determines the faults and their order.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.chaos.namespaces import Lab
from tests.support.cluster import Cluster, ClusterBroker
from tests.support.secured_cluster import Reach
from tests.support.store_process import StoreProcess
from tests.support.zookeeper import ZooKeeper

logger = logging.getLogger("nemesis")

FILLER = "filler"
WAKING_TIMEOUT_S = 240.0
"""Until a broker that was killed has read what it had not flushed, beside four others on the same cores."""
STARTS_MAX = 5
STORE_WAS_LOST = (
    "lost the connection to the coordination store while the broker started",
    "no ZooKeeper answers at",
    "no coordination store answers at",
)


@dataclass(slots=True)
class Scene:
    """Targets of a nemesis."""

    cluster: Cluster
    reach: Reach
    store: ZooKeeper | StoreProcess
    topic: str
    random: random.Random
    lab: Lab | None = None
    full_disks: Sequence[Path] = ()
    """Data directories on small disks of their own, in the order of the brokers."""
    stopped: list[ClusterBroker] = field(default_factory=list)

    def leader(self) -> ClusterBroker:
        """Leader of any partition of the topic, or any running broker if none leads."""
        metadata = self._metadata().list_topics(self.topic, timeout=10)
        leaders = [each.leader for each in metadata.topics[self.topic].partitions.values() if each.leader > 0]
        return self._running(leaders)

    def controller(self) -> ClusterBroker:
        return self._running([self._metadata().list_topics(timeout=10).controller_id])

    def coordinator(self) -> ClusterBroker:
        partitions = (
            self._metadata().list_topics("__consumer_offsets", timeout=10).topics["__consumer_offsets"]
        )
        return self._running([each.leader for each in partitions.partitions.values()])

    def any(self) -> ClusterBroker:
        return self._running([])

    def _running(self, wanted: Sequence[int]) -> ClusterBroker:
        running = [broker for broker in self.cluster.brokers if broker.is_running]
        chosen = [broker for broker in running if broker.id in wanted]
        return self.random.choice(chosen or running)

    def _metadata(self) -> AdminClient:
        return AdminClient({**self.reach.properties, "log_level": 0})


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    strike: Callable[[Scene], None]
    lasts_s: float
    needs_lab: bool = False
    needs_disk: bool = False
    store: type[ZooKeeper | StoreProcess] | None = None
    """Kind of the coordination store, if the fault is one of it alone."""


def _kill(pick: Callable[[Scene], ClusterBroker]) -> Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        broker = pick(scene)
        logger.info("kill -9 of broker %d", broker.id)
        broker.kill()

    return strike


def _kill_two(scene: Scene) -> None:
    for broker in scene.random.sample(list(scene.cluster.brokers), 2):
        logger.info("kill -9 of broker %d", broker.id)
        broker.kill()


def _kill_all(scene: Scene) -> None:
    logger.info("kill -9 of every broker")
    scene.cluster.kill()


def _restart_without_one(scene: Scene) -> None:
    """After a restart the broker knows decisions of the others only from their logs."""
    missing = scene.any()
    logger.info(
        "kill -9 of broker %d, then a clean stop of all others, which come back without it", missing.id
    )
    missing.kill()
    time.sleep(4)
    others = [broker for broker in scene.cluster.brokers if broker is not missing]
    for broker in others:
        broker.terminate()
    _wake(others)


def _pause(scene: Scene) -> None:
    """Longer than the session: when it goes on, it is a leader that was deposed and does not know it."""
    broker = scene.leader()
    logger.info("SIGSTOP of broker %d", broker.id)
    broker.stop()
    scene.stopped.append(broker)


def _restart(scene: Scene) -> None:
    broker = scene.any()
    logger.info("clean restart of broker %d", broker.id)
    broker.restart()


def _kill_zookeeper(scene: Scene) -> None:
    logger.info("kill -9 of ZooKeeper")
    scene.store.kill()


def _kill_shared_store(scene: Scene) -> None:
    logger.info("kill -9 of the shared store")
    scene.store.kill()


def _kill_shared_store_often(scene: Scene) -> None:
    """In the middle of what brokers ask of it when it comes back."""
    for _ in range(5):
        logger.info("kill -9 of the shared store, which is started again")
        scene.store.kill()
        time.sleep(scene.random.uniform(0.0, 0.5))
        scene.store.start()
        time.sleep(scene.random.uniform(0.0, 0.5))


def _kill_shared_store_and_leader(scene: Scene) -> None:
    """The end of the leader is reported to a store that is away."""
    leader = scene.leader()
    logger.info("kill -9 of the shared store and of broker %d", leader.id)
    scene.store.kill()
    leader.kill()


def _kill_everything(scene: Scene) -> None:
    logger.info("kill -9 of the shared store and of every broker")
    scene.store.kill()
    scene.cluster.kill()


def _pause_shared_store(scene: Scene) -> None:
    """Longer than the sessions, none of which may end: their owners live."""
    assert isinstance(scene.store, StoreProcess)
    logger.info("SIGSTOP of the shared store")
    scene.store.pause()


def _cut_brokers(scene: Scene) -> None:
    assert scene.lab is not None
    one, other = scene.random.sample(list(scene.cluster.brokers), 2)
    logger.info("cut brokers %d and %d off each other", one.id, other.id)
    scene.lab.cut_both(host_of(one), host_of(other))


def _cut_one_way(scene: Scene) -> None:
    assert scene.lab is not None
    one, other = scene.random.sample(list(scene.cluster.brokers), 2)
    logger.info("cut what broker %d sends to broker %d", one.id, other.id)
    scene.lab.cut(host_of(one), host_of(other))


def _cut_from_zookeeper(scene: Scene) -> None:
    assert scene.lab is not None
    broker = scene.leader()
    logger.info("cut broker %d off ZooKeeper", broker.id)
    scene.lab.cut_both(host_of(broker), "zookeeper")


def _cut_from_clients(scene: Scene) -> None:
    assert scene.lab is not None
    broker = scene.leader()
    logger.info("cut the clients off broker %d", broker.id)
    scene.lab.cut_both("client", host_of(broker))


def _isolate(scene: Scene) -> None:
    assert scene.lab is not None
    broker = scene.leader()
    logger.info("cut broker %d off all the others and ZooKeeper", broker.id)
    for other in scene.cluster.brokers:
        if other is not broker:
            scene.lab.cut_both(host_of(broker), host_of(other))
    if isinstance(scene.store, ZooKeeper):
        scene.lab.cut_both(host_of(broker), "zookeeper")


def _fill_disk(scene: Scene) -> None:
    place = scene.random.randrange(len(scene.full_disks))
    logger.info("the disk of broker %d is full", scene.cluster.brokers[place].id)
    with contextlib.suppress(OSError), (scene.full_disks[place] / FILLER).open("wb") as filler:
        while True:
            filler.write(bytes(1 << 16))


FAULTS = (
    Fault("kill the leader", _kill(Scene.leader), 4),
    Fault("kill the controller", _kill(Scene.controller), 4),
    Fault("kill the coordinator", _kill(Scene.coordinator), 4),
    Fault("kill any broker", _kill(Scene.any), 2),
    Fault("kill two brokers", _kill_two, 4),
    Fault("kill all brokers", _kill_all, 1),
    Fault("restart without one", _restart_without_one, 4),
    Fault("pause a leader", _pause, 5),
    Fault("clean restart", _restart, 0.5),
    Fault("kill ZooKeeper", _kill_zookeeper, 4, store=ZooKeeper),
    Fault("kill the shared store", _kill_shared_store, 4, store=StoreProcess),
    Fault("kill the shared store often", _kill_shared_store_often, 0.5, store=StoreProcess),
    Fault("kill the shared store and a leader", _kill_shared_store_and_leader, 1, store=StoreProcess),
    Fault("kill everything", _kill_everything, 0.5, store=StoreProcess),
    Fault("pause the shared store", _pause_shared_store, 5, store=StoreProcess),
    Fault("cut two brokers", _cut_brokers, 5, needs_lab=True),
    Fault("cut one way", _cut_one_way, 5, needs_lab=True),
    Fault("cut off ZooKeeper", _cut_from_zookeeper, 5, needs_lab=True, store=ZooKeeper),
    Fault("cut off the clients", _cut_from_clients, 4, needs_lab=True),
    Fault("isolate a leader", _isolate, 5, needs_lab=True),
    Fault("fill a disk", _fill_disk, 3, needs_disk=True),
)


def possible(scene: Scene) -> list[Fault]:
    return [
        fault
        for fault in FAULTS
        if (scene.lab is not None or not fault.needs_lab)
        and (scene.full_disks or not fault.needs_disk)
        and (fault.store is None or isinstance(scene.store, fault.store))
    ]


def heal(scene: Scene) -> None:
    """Everything is whole again: links, disks, processes."""
    if scene.lab is not None:
        scene.lab.heal()
    for broker in scene.stopped:
        broker.cont()
    scene.stopped.clear()
    if not scene.store.process.is_running:
        scene.store.start()
    elif isinstance(scene.store, StoreProcess):
        scene.store.resume()
    for place, disk in enumerate(scene.full_disks):
        if (disk / FILLER).exists():
            (disk / FILLER).unlink()
            # A directory that failed stays offline until its broker is started again.
            broker = scene.cluster.brokers[place]
            if broker.is_running:
                broker.kill()
    _wake([broker for broker in scene.cluster.brokers if not broker.is_running])


def _wake(brokers: Sequence[ClusterBroker]) -> None:
    """As a supervisor does: a broker may end where ZooKeeper is out of its reach while it starts."""
    for broker in brokers:
        broker.launch()
    for broker in brokers:
        for attempt in range(1, STARTS_MAX + 1):
            try:
                broker.wait_ready(WAKING_TIMEOUT_S)
                break
            except RuntimeError:
                told = broker.output_text()
                if attempt == STARTS_MAX or not any(each in told for each in STORE_WAS_LOST):
                    raise
            logger.info("broker %d met no ZooKeeper as it started, and is started again", broker.id)
            broker.launch()


def host_of(broker: ClusterBroker) -> str:
    return f"b{broker.id}"
