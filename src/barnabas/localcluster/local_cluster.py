"""`barnabas start --brokers N`: a cluster on one machine, one process per broker, under one supervisor.

One set of properties becomes N sets:
- broker ids 1 to N;
- each listener, advertised listener and metrics port, plus one per broker;
- a directory `broker-<id>` inside every log directory. The default directory differs from a single broker's.

The brokers share a coordination store, which runs as a process of its own in `coordination`
(`shared_store`). With `zookeeper.connect=local` a ZooKeeper runs in `zookeeper` instead, and a home that has
one keeps it; any other value of `zookeeper.connect` names an ensemble. The sessions of a local ZooKeeper last
six seconds: it does not know that a silent broker is dead.

The internal topics get three replicas, two of which must be in sync; with fewer brokers, as many as there
are. The properties set that from the start: otherwise the first broker would create them with itself as the
only replica.

Each broker's properties are written to `broker-<id>.properties` in the data directory, readable by the owner
only. So secrets do not show in the process list, and an operator can start one broker by hand.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext

from barnabas.cluster.coordination.contract import CoordinationError
from barnabas.cluster.shared.notices import PROCESS_VARIABLE
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.cross_checks import LOCAL_ZOOKEEPER
from barnabas.config.derived import default_cluster_directory
from barnabas.config.properties import render_properties
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import InvalidConfig, KafkaError
from barnabas.localcluster.cluster_output import ClusterOutput
from barnabas.localcluster.secret_files import write_private
from barnabas.localcluster.shared_store import HomeInUse, SharedStore, new_process_name, uses_zookeeper
from barnabas.localcluster.start_checks import (
    PortTaken,
    check_ports_are_free,
    check_ports_differ,
    left_out,
)
from barnabas.localcluster.stored_users import FirstUsers
from barnabas.node.membership.coordination_store import COORDINATION_DIRECTORY, protect_own_zookeeper
from barnabas.processes.child_process import Child, ChildEnded, Say
from barnabas.processes.supervisor import RESTART_BACKOFF, Member, Stopped, Supervisor
from barnabas.processes.zookeeper_member import ZooKeeperMember, locked
from barnabas.processes.zookeeper_process import CannotRunZooKeeper, ZooKeeperServer, beside
from barnabas.storage.directory.directory_properties import META_PROPERTIES

BROKER_COMMAND = (sys.executable, "-m", "barnabas", "start")
READY_PREFIX = "barnabas ready"
INTERNAL_REPLICAS = 3
LOCAL_SESSION_TIMEOUT_MS = 6_000

_KEEPS_ZOOKEEPER = (
    "the metadata of this cluster is in the ZooKeeper in {}, which is started; a cluster in a new --data-dir"
    " needs no ZooKeeper"
)
_START_FAILURES = (
    ChildEnded,
    CannotRunZooKeeper,
    HomeInUse,
    PortTaken,
    CoordinationError,
    KafkaError,
    OSError,
)
_READY_LISTENERS = re.compile(r"listeners (?P<listeners>\S+), data in")


BesideCluster = Callable[[Sequence[str], Callable[[str, str], None]], AbstractAsyncContextManager[None]]
"""Part that runs beside brokers with these listeners, such as the console. The callback takes its lines."""


class ClusterFailed(Exception):
    """The cluster did not start; the message is for the operator."""


class BrokerMember:
    """A `supervisor.Member`: one broker, from its properties."""

    restart_backoff = RESTART_BACKOFF

    def __init__(self, broker_id: int, command: Sequence[str], store: SharedStore | None) -> None:
        self.broker_id = broker_id
        self.name = f"broker-{broker_id}"
        self._command = command
        self._store = store
        self._process_name = ""
        self.listeners = ""

    async def launch(self, say: Say) -> Child:
        self._process_name = new_process_name()
        lock = None if self._store is None else self._store.lock
        return await Child.start(
            self.name,
            self._command,
            say,
            lambda line: line.startswith(READY_PREFIX),
            environment={PROCESS_VARIABLE: self._process_name},
            inherited=() if lock is None else (lock,),
        )

    async def until_ready(self, child: Child) -> None:
        found = _READY_LISTENERS.search(await child.wait_ready())
        self.listeners = found["listeners"] if found else ""

    def ended(self) -> None:
        if self._store is not None:
            self._store.process_ended(self._process_name)


class LocalCluster:
    """Cluster of N brokers. The constructor raises InvalidConfig if the properties do not work for N
    brokers."""

    def __init__(
        self,
        properties: Mapping[str, str],
        brokers: int,
        metrics_address: Endpoint | None = None,
        broker_command: Sequence[str] = BROKER_COMMAND,
        first_users: FirstUsers | None = None,
        companion: BesideCluster | None = None,
    ) -> None:
        if "broker.id" in properties:
            raise InvalidConfig("a cluster numbers its brokers from 1; leave broker.id out, or node.id")
        if "coordination.socket" in properties:
            raise InvalidConfig("a cluster runs a store of its own; leave coordination.socket out")
        default = {"log.dirs": str(default_cluster_directory())}
        if "log.dirs" in properties or "log.dir" in properties:
            default = {}
        base = BrokerConfig.load({**default, **properties})
        self._directories = [each.absolute() for each in base.log_dirs]
        self.directory = self._directories[0]
        self.server: ZooKeeperServer | None = None
        self.store: SharedStore | None = None
        connect = base.zookeeper_connect
        self.keeps_zookeeper = not connect and uses_zookeeper(self.directory)
        """Whether the home's own ZooKeeper is used because it has the metadata of the cluster."""
        if connect == LOCAL_ZOOKEEPER or self.keeps_zookeeper:
            self.server = beside(self.directory)
            connect = self.server.connect
        if connect:
            self.where = f"zookeeper {connect}"
            named = {"zookeeper.connect": connect}
        else:
            self.store = SharedStore(self.directory)
            self.where = f"coordination store in {self.store.directory}"
            named = {"coordination.socket": str(self.store.socket)}
        self.properties = {
            number: broker_properties(base, number, brokers, named) for number in range(1, brokers + 1)
        }
        if self.server is not None:
            for each in self.properties.values():
                each.setdefault("zookeeper.session.timeout.ms", str(LOCAL_SESSION_TIMEOUT_MS))
        self._configs = [BrokerConfig.load(each) for each in self.properties.values()]
        check_ports_differ(self._configs)
        self._metrics_address = metrics_address
        self._command = broker_command
        self._first_users = first_users
        self._companion = companion

    def run(self, announce: Say, say: Callable[[str, str], None]) -> None:
        """Run until a signal; a second one kills all processes."""
        self._refuse_directories_of_one_broker()
        self._refuse_another_store()
        if self.keeps_zookeeper:
            say("supervisor", _KEEPS_ZOOKEEPER.format(self.directory / "zookeeper"))
        try:
            with ExitStack() as stack:
                if self.server is not None:
                    stack.enter_context(locked(self.server))
                if self.store is not None:
                    stack.enter_context(self.store.locked())
                check_ports_are_free(self._configs, self._metrics_addresses())
                self._name_brokers_left_out(say)
                asyncio.run(self._serve(announce, say))
        except _START_FAILURES as error:
            raise ClusterFailed(str(error)) from error

    def _refuse_directories_of_one_broker(self) -> None:
        for directory in self._directories:
            if (directory / META_PROPERTIES).exists():
                raise ClusterFailed(
                    f"{directory} is the log directory of a single broker; choose another --data-dir"
                )

    def _metrics_addresses(self) -> list[Endpoint]:
        if self._metrics_address is None:
            return []
        return [counted(self._metrics_address, number) for number in self.properties]

    def _name_brokers_left_out(self, say: Callable[[str, str], None]) -> None:
        """Name brokers of the home that stay down: their partitions lack replicas, or a leader."""
        down = left_out(self.directory, len(self.properties))
        if down:
            say(
                "supervisor",
                f"{self.directory} also holds data of broker {', '.join(map(str, down))}, which stays down:"
                f" partitions on it have fewer replicas, or no leader; start all with --brokers {down[-1]}",
            )

    def _refuse_another_store(self) -> None:
        """Topics and users of the home are in its own store; another one would begin without them."""
        own = self.directory / COORDINATION_DIRECTORY
        if self.store is None and own.exists() and not uses_zookeeper(self.directory):
            raise ClusterFailed(
                f"the cluster in {self.directory} keeps its metadata in {own}; start it without --zookeeper,"
                " or choose another --data-dir"
            )

    async def _serve(self, announce: Say, say: Callable[[str, str], None]) -> None:
        brokers = [self._member(number) for number in self.properties]
        stages: list[Sequence[Member]] = [brokers]
        if self.server is not None:
            stages.insert(0, [ZooKeeperMember(self.server)])
        if self.store is not None:
            stages.insert(0, [self.store.member])
        output = ClusterOutput(say)
        supervisor = Supervisor(stages, output.say, SystemClock())
        for signum in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(signum, supervisor.request_stop)
        try:
            *before, last = supervisor.stages
            for stage in before:
                await supervisor.start_stage(stage)
            config = self._configs[0]
            if self.server is not None:
                await protect_own_zookeeper(config, SystemClock())
            if self.store is not None:
                await self.store.begin()
            if self._first_users is not None:
                await self._first_users.put(config)
            await supervisor.start_stage(last)
            announce(self.ready_line(brokers))
            async with self._running_beside(brokers, output.say):
                await supervisor.wait_stopping()
                output.begin_stop(len(brokers))
        except Stopped:
            say("supervisor", "stopping before the cluster was ready")
        finally:
            await supervisor.stop()
            if self.store is not None:
                await self.store.close()

    def _running_beside(
        self, brokers: Sequence[BrokerMember], say: Callable[[str, str], None]
    ) -> AbstractAsyncContextManager[None]:
        if self._companion is None:
            return nullcontext()
        return self._companion(
            [listener for broker in brokers for listener in broker.listeners.split(",")], say
        )

    def ready_line(self, brokers: Sequence[BrokerMember]) -> str:
        ids = ",".join(str(broker.broker_id) for broker in brokers)
        listeners = ",".join(broker.listeners for broker in brokers)
        return f"{READY_PREFIX}: brokers {ids}, listeners {listeners}, data in {self.directory}, {self.where}"

    def _member(self, number: int) -> BrokerMember:
        path = self.directory / f"broker-{number}.properties"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, render_properties(self.properties[number]))
        command = [*self._command, "--config", str(path)]
        if self._metrics_address is not None:
            command += ["--metrics", str(counted(self._metrics_address, number))]
        return BrokerMember(number, command, self.store)


def broker_properties(
    base: BrokerConfig, number: int, brokers: int, store: Mapping[str, str]
) -> dict[str, str]:
    """Properties of one broker of several; `store` are those that name the coordination store."""
    own = {
        "broker.id": str(number),
        **store,
        "log.dirs": ",".join(str(path.absolute() / f"broker-{number}") for path in base.log_dirs),
        "listeners": ",".join(str(_moved(listener, number)) for listener in base.listeners),
    }
    if base.advertised_listeners:
        own["advertised.listeners"] = ",".join(
            str(_moved(listener, number)) for listener in base.advertised_listeners.values()
        )
    return {**internal_topics(brokers), **base.given, **own}


def internal_topics(brokers: int) -> dict[str, str]:
    replicas = min(INTERNAL_REPLICAS, brokers)
    return {
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(max(1, replicas - 1)),
    }


def _moved(listener: ListenerEndpoint, number: int) -> ListenerEndpoint:
    return listener._replace(endpoint=counted(listener.endpoint, number))


def counted(endpoint: Endpoint, number: int) -> Endpoint:
    """Port 0, which takes a free port, stays 0."""
    return endpoint._replace(port=endpoint.port + number - 1) if endpoint.port else endpoint
