"""A cluster of real brokers inside the test process.

    with run_cluster(3) as cluster:
        topic = cluster.create_topic(replication_factor=3)
        cluster.move_leader(topic, 0, to=2)
        cluster.kill(2)

Each broker has a thread, a loop and sockets of its own, and they share a coordination store in the process.
Replication, elections and failover are those of production. A broker that is killed is missed at once; one
that is paused is missed when its session ends (`zookeeper.session.timeout.ms`, 6 s here).
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.metadata import Partition
from barnabas.cluster.shared.session_table import TICK_MS
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.ids import TopicPartition
from barnabas.localcluster.local_cluster import internal_topics
from barnabas.node.membership.coordination_store import COORDINATION_DIRECTORY, OpenCoordination
from barnabas.testing import history
from barnabas.testing.asking import inspection, interventions
from barnabas.testing.asking.looking import WAIT_S, Looking
from barnabas.testing.broker import QUICK_SETTINGS, Beside, RunningBroker, Time, check_time
from barnabas.testing.faults.disk import Disk
from barnabas.testing.faults.rules import Faults
from barnabas.testing.running.broker_life import BrokerLife, Surroundings
from barnabas.testing.running.kit import Kit
from barnabas.testing.running.store_thread import StoreThread
from barnabas.testing.running.virtual_time import VirtualClock, VirtualLoop, VirtualTime
from barnabas.testing.running.wires import WiredLoop, Wires
from barnabas.testing.snapshots import check_copy, copy_data

T = TypeVar("T")

BROKERS_MAX: Final = 32
SESSION_TIMEOUT_MS: Final = 6_000
VIRTUAL_TICK_MS: Final = 1_000
"""Period in which the store looks for silent sessions. Each look is a stop of a jump through time."""


class MemberBroker(RunningBroker):
    """Handle on one broker of a cluster. Its questions are answered by the cluster."""

    def __init__(self, life: BrokerLife, data_dir: Path, cluster: RunningCluster) -> None:
        super().__init__(life, data_dir, cluster._time)
        self._cluster = cluster
        actions = life.kit.actions
        actions.client = lambda: inspection.kit_client(cluster._endpoints())
        actions.loop = lambda: cluster._store.loop
        actions.expire_session = lambda: cluster._expire(self.broker_id)

    def kill(self) -> None:
        """End the broker as `kill -9` does; the others take over at once."""
        self._cluster.kill(self.broker_id)

    def restart(self) -> None:
        """Start the broker on its port and data, after a clean stop if it runs. Cuts stay."""
        self._cluster.restart(self.broker_id)

    def snapshot(self, into: Path | None = None) -> Path:  # noqa: ARG002 - as for one broker
        """RuntimeError: the data of one broker alone is of no use."""
        raise RuntimeError("take the snapshot of the cluster: the brokers' data belongs together")

    def restore(self, snapshot: Path) -> None:  # noqa: ARG002 - as for one broker
        """RuntimeError, as for `snapshot`."""
        raise RuntimeError("restore the cluster: the brokers' data belongs together")

    def _ask(self, question: Callable[[ClusterClient], Awaitable[T]]) -> T:
        return self._cluster._ask(question)


class RunningCluster(Looking):
    """Handle of a test on its cluster. Brokers are numbered from 1."""

    def __init__(
        self,
        properties: Mapping[int, Mapping[str, str]],
        home: Path,
        clock: VirtualClock,
        *,
        is_virtual: bool,
        is_lasting: bool,
        metrics_addresses: Mapping[int, Endpoint] | None = None,
        beside: Beside | None = None,
    ) -> None:
        """`properties` are those of each broker, by its id."""
        self._home = home
        self.faults = Faults(in_cluster=True)
        """Rules that make requests to any broker go wrong. Those of a single broker are its own `faults`."""
        self._clock = clock
        self._time = VirtualTime(clock, self._loops) if is_virtual else None
        self._is_lasting = is_lasting
        self._store = self._new_store()
        self._cuts: set[frozenset[int]] = set()
        self._names: dict[int, str] = {}
        self._lives: dict[int, BrokerLife] = {}
        for number, settings in properties.items():
            around = Surroundings(
                lambda: Wires(busy_poll_ms=0.0),  # brokers of one process would poll against each other
                lambda wires: WiredLoop(clock, wires),
                partial(self._opener, number),
                (metrics_addresses or {}).get(number),
                beside,
            )
            kit = Kit(is_lasting=is_lasting, of_cluster=self.faults)
            named = {"coordination.socket": str(self._store.socket)}
            self._lives[number] = BrokerLife(f"broker-{number}", {**settings, **named}, kit, around)
        self.brokers: Sequence[MemberBroker] = [
            MemberBroker(life, home / f"broker-{number}", self) for number, life in self._lives.items()
        ]
        """All brokers, running or not, in the order of their ids."""

    def _new_store(self) -> StoreThread:
        files = Disk(is_lasting=self._is_lasting)
        tick_ms = TICK_MS if self._time is None else VIRTUAL_TICK_MS
        return StoreThread(self._home / COORDINATION_DIRECTORY, self._clock, files, tick_ms=tick_ms)

    def _opener(self, number: int, wires: Wires) -> OpenCoordination:
        self._names[number] = secrets.token_hex(8)
        return self._store.opener(self._names[number], lambda: wires.is_dead)

    # --- the brokers ---

    def broker(self, broker_id: int) -> MemberBroker:
        """One broker, with its faults, its disk, its requests and its log."""
        self._life(broker_id)
        return self.brokers[broker_id - 1]

    def __getitem__(self, broker_id: int) -> MemberBroker:
        return self.broker(broker_id)

    def __len__(self) -> int:
        return len(self._lives)

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers, for `bootstrap.servers`."""
        return ",".join(each.bootstrap for each in self.brokers)

    @property
    def time(self) -> VirtualTime:
        """Time of all brokers; RuntimeError unless the cluster runs with `time="virtual"`."""
        if self._time is None:
            raise RuntimeError('this cluster runs on real time; start it with run_cluster(time="virtual")')
        return self._time

    def kill(self, broker_id: int) -> None:
        """End a broker as `kill -9` does, paused or not. The others take over at once."""
        life, name = self._life(broker_id), self._names.get(broker_id, "")
        life.kill(lambda: self._store.end_process(name))

    def stop(self, broker_id: int) -> None:
        """Shut a broker down, as SIGTERM does: it hands its leaderships over first."""
        self._life(broker_id).stop()

    def restart(self, broker_id: int) -> None:
        """Start a broker that was killed or stopped, or stop and start one that runs."""
        life = self._life(broker_id)
        life.stop()
        life.start()
        self._apply_cuts()

    def pause(self, broker_id: int) -> None:
        """Let a broker stand still, as after SIGSTOP, until `resume`."""
        self._life(broker_id).thread.pause()

    def resume(self, broker_id: int) -> None:
        self._life(broker_id).thread.resume()

    def cut(self, one: int, other: int) -> None:
        """Cut the connection between two brokers. Clients and the coordination store reach both."""
        self._life(one)
        self._life(other)
        if one == other:
            raise ValueError(f"broker {one} cannot be cut off from itself")
        self._cuts.add(frozenset((one, other)))
        self._apply_cuts()

    def heal(self, one: int | None = None, other: int | None = None) -> None:
        """End the cut between two brokers, all cuts of one broker, or all cuts."""
        named = {each for each in (one, other) if each is not None}
        self._cuts = {cut for cut in self._cuts if not named <= cut}
        self._apply_cuts()

    def expire_session(self, broker_id: int) -> None:
        """End the session of a broker that lives with the coordination store, as a long pause does. It
        registers again."""
        self._life(broker_id).check_runs()
        self._store.ask(lambda: self._expire(broker_id))

    async def _expire(self, broker_id: int) -> None:
        await self._store.expire_sessions(self._names[broker_id])

    @property
    def cuts(self) -> list[tuple[int, int]]:
        """Pairs of brokers that cannot connect to each other."""
        return sorted((min(each), max(each)) for each in self._cuts)

    # --- leaders ---

    def controller(self) -> int:
        """The broker that is the controller; -1 while none is."""
        epochs = {
            number: life.broker.controller_epoch for number, life in self._lives.items() if life.is_serving
        }
        newest = max(epochs.values(), default=-1)
        return -1 if newest < 0 else next(number for number, epoch in epochs.items() if epoch == newest)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition; -1 if none does."""
        return self._ask(lambda client: inspection.partition_of(client, topic, partition)).leader_id

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The in-sync replicas of a partition."""
        return sorted(self._ask(lambda client: inspection.partition_of(client, topic, partition)).isr)

    def wait_for_leader(
        self, topic: str, partition: int = 0, *, is_not: int | None = None, timeout_s: float = WAIT_S
    ) -> int:
        """Wait until a partition has a leader, another one than `is_not`; returns it."""
        at = TopicPartition(topic, partition)
        return self._store.ask(lambda: inspection.await_leader(self._look, at, is_not, timeout_s))

    def wait_in_sync(
        self, topic: str, partition: int = 0, *, replicas: Sequence[int] | None = None,
        timeout_s: float = WAIT_S,
    ) -> None:  # fmt: skip
        """Wait until the in-sync replicas are these, or all."""
        at = TopicPartition(topic, partition)
        self._store.ask(lambda: inspection.await_in_sync(self._look, at, replicas, timeout_s))

    def move_leader(self, topic: str, partition: int = 0, *, to: int, timeout_s: float = WAIT_S) -> None:
        """Make a broker the leader of a partition. One that has no replica gets one first."""
        self._life(to)
        self._ask(lambda client: interventions.move_leader(client, topic, partition, to, timeout_s=timeout_s))

    # --- data ---

    def snapshot(self, into: Path | None = None) -> Path:
        """Copy the data of all brokers and the store, and return the directory of the copy."""
        target = into or self.brokers[0]._new_directory()
        check_copy(self._home, target)
        running = self._halt()
        try:
            copy_data(self._home, target)
        finally:
            self._start(running)
        return target

    def restore(self, snapshot: Path) -> None:
        """Go back to the data of a snapshot. All brokers start on their ports, and clients connect again."""
        check_copy(snapshot, self._home)
        self._halt()
        copy_data(snapshot, self._home)
        self._start(list(self._lives))

    # --- start and stop ---

    def _start(self, numbers: Sequence[int]) -> None:
        if not self._store.is_alive():
            self._store = self._new_store()
            self._store.start()
            self._store.wait_started()
        lives = [self._lives[number] for number in numbers]
        for each in lives:
            each.launch()
        for each in lives:
            each.wait_started()
        self._apply_cuts()
        ids = frozenset(number for number, life in self._lives.items() if life.is_running)
        self._ask(lambda client: inspection.await_brokers(client, ids, WAIT_S))

    def _halt(self) -> list[int]:
        """Stop all brokers, then the store; returns those that ran."""
        running = [number for number, life in self._lives.items() if life.is_running]
        for number in running:  # the last brokers cannot hand their partitions over: no warning
            self._lives[number].thread.mute()
        with ExitStack() as stack:
            if self._store.is_alive():
                stack.callback(self._store.stop)
            for life in self._lives.values():
                stack.callback(life.stop)
        return running

    def _release_ports(self) -> None:
        for life in self._lives.values():
            life.end()

    def _life(self, broker_id: int) -> BrokerLife:
        found = self._lives.get(broker_id)
        if found is None:
            raise ValueError(f"there is no broker {broker_id}; the cluster has 1 to {len(self._lives)}")
        return found

    def _apply_cuts(self) -> None:
        ports = {
            number: [each.endpoint.port for each in life.broker.bound_listeners]
            for number, life in self._lives.items()
            if life.is_running
        }
        for number in ports:
            cut_off = {other for cut in self._cuts if number in cut for other in cut - {number}}
            self._lives[number].wires.forbid(
                frozenset(port for other in cut_off for port in ports.get(other, ()))
            )

    def _loops(self) -> list[VirtualLoop]:
        loops = [life.loop for life in self._lives.values()]
        return [self._store.loop, *(each for each in loops if isinstance(each, VirtualLoop))]

    def _ask(self, question: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """Put a question to the cluster as a client, on the loop of the store: it never stands still."""

        async def ask() -> T:
            async with inspection.kit_client(self._endpoints()) as client:
                return await question(client)

        return self._store.ask(ask)

    async def _look(self, at: TopicPartition) -> Partition:
        async with inspection.kit_client(self._endpoints()) as client:
            return await inspection.partition_of(client, at.topic, at.partition)

    def _endpoints(self) -> list[Endpoint]:
        """Addresses of the brokers, the controller's first: a broker that is cut off from the controller
        answers with the leaders and in-sync replicas from before the cut."""
        controller = self.controller()
        found = [
            listener
            for number, life in sorted(self._lives.items(), key=lambda item: item[0] != controller)
            if life.is_serving
            for listener in life.broker.bound_listeners
        ]
        if not found:
            raise RuntimeError("no broker of the cluster runs now; restart one first")
        return inspection.plain_addresses(found)


@contextmanager
def run_cluster(
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
    *,
    data_dir: Path | None = None,
    snapshot: Path | None = None,
    time: Time = "real",
) -> Iterator[RunningCluster]:
    """Run a cluster during the context; `settings` are Kafka's keys, for every broker. Topics have a replica
    on each of up to three brokers."""
    check_time(time)
    if not 1 <= brokers <= BROKERS_MAX:
        raise ValueError(f"brokers={brokers}: write a number from 1 to {BROKERS_MAX}")
    with tempfile.TemporaryDirectory(prefix="barnabas-cluster-") as scratch:
        home = data_dir or Path(scratch)
        if snapshot is not None:
            copy_data(snapshot, home)
        properties = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **quick_settings(brokers),
            **internal_topics(brokers),
            **(settings or {}),
        }
        for mine in (
            "broker.id",
            "node.id",
            "log.dirs",
            "log.dir",
            "coordination.socket",
            "zookeeper.connect",
        ):
            if mine in (settings or {}):
                raise ValueError(f"{mine} is set by the cluster itself; leave it out")
        cluster = RunningCluster(
            {
                number: {**properties, "broker.id": str(number), "log.dirs": str(home / f"broker-{number}")}
                for number in range(1, brokers + 1)
            },
            home,
            VirtualClock(),
            is_virtual=time == "virtual",
            is_lasting=data_dir is not None,
        )
        with running(cluster):
            yield cluster


def quick_settings(brokers: int) -> dict[str, str]:
    """Settings with which a cluster of this size starts quickly, and misses a paused broker soon."""
    return {
        **QUICK_SETTINGS,
        "default.replication.factor": str(min(brokers, 3)),
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    }


@contextmanager
def running(cluster: RunningCluster) -> Iterator[None]:
    """Run all brokers of a cluster during the context."""
    try:
        cluster._start(list(cluster._lives))
        for each in cluster.brokers:
            history.remember(each)
        yield
    finally:
        try:
            cluster._halt()
        finally:
            cluster._release_ports()
        for each in cluster.brokers:
            each._forget_snapshots()
