"""Brokers without a controller: real logs, real sockets, real handlers, and a test that gives the orders.

Each `Member` is what replication needs of a broker. `Trio` joins several of them and speaks to
them as a controller would, through their listeners. The store of ISRs is a dictionary with
versions, which a test may make refuse.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

from barnabas.client.aio.channel import Channel
from barnabas.cluster.coordination.contract import BadVersion
from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.cluster.stores.isr_store import Joining
from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.cluster.znodes.layout import PartitionState
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import NetworkException
from barnabas.core.files import Files, RealFiles
from barnabas.core.ids import BrokerId, TopicPartition, Uuid
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import Background, InlineBackground
from barnabas.handlers import APIS
from barnabas.network.server import Server
from barnabas.node.background_threads import ThreadBackground
from barnabas.node.membership.replication_io import ReplicationTasks
from barnabas.node.runtime import LoopScheduler, TimerDriver
from barnabas.protocol.messages import fetch, leader_and_isr, produce, stop_replica, update_metadata
from barnabas.protocol.schema.message import Message
from barnabas.purgatory.timer import Timer
from barnabas.records.builder import build_batch
from barnabas.replication.leader.fetch_session_cache import FetchSessionCache
from barnabas.replication.partition.lease import LeadershipLease
from barnabas.replication.partition.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.requests.dispatcher import Dispatcher
from barnabas.requests.services import Services
from barnabas.security.acl.authorizer import AllowAll
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.log_manager import LogManager
from tests.support.settings import broker_config, log_config, unlimited
from tests.support.waiting import PATIENCE_S

Response = TypeVar("Response", bound=Message)

TOPIC = "topic"
TOPIC_ID = Uuid(bytes(range(16)))
ZERO = TopicPartition(TOPIC, 0)
ONE = TopicPartition(TOPIC, 1)

QUICK = broker_config(
    replica_lag_time_max_ms=30_000, replica_fetch_wait_max_ms=50, replica_fetch_backoff_ms=50
)


class MemoryIsrStore:
    """All partition states of the cluster, with their versions."""

    def __init__(self) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}
        self.joined: list[Joining | None] = []
        self.gate: asyncio.Event | None = None
        """While it is there and not set, writes wait."""

    async def write(
        self,
        topic_partition: TopicPartition,
        state: PartitionState,
        joining: Joining | None = None,
        withdrawn: PartitionState | None = None,
    ) -> int:
        self.joined.append(joining)
        if self.gate is not None:
            await self.gate.wait()
        known = self.states[topic_partition]
        if known.state_version != state.state_version:
            raise BadVersion(str(topic_partition))
        self.states[topic_partition] = state._replace(state_version=state.state_version + 1)
        return state.state_version + 1


class _Settings:
    fetch_max_bytes = 55 * 1024 * 1024
    transaction_partition_verification_enable = False
    advertised_listeners: Mapping[str, Any] = MappingProxyType({})


class _Configs:
    """Remembers which topics were asked for."""

    def __init__(self) -> None:
        self.loaded: list[str] = []

    async def load_topics(self, names: Iterable[str]) -> None:
        self.loaded.extend(names)


class Listener:
    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.heard: list[tuple[str, int, int | None]] = []

    def elected(self, partition: int, leader_epoch: int) -> None:
        self.heard.append(("elected", partition, leader_epoch))

    def resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        self.heard.append(("resigned", partition, leader_epoch))


class Member:
    """One broker of the cluster."""

    def __init__(
        self,
        broker_id: int,
        directory: Path,
        trio: Trio,
        *,
        files: Files | None = None,
        background: Background | None = None,
        lease_expires_ms: Callable[[], float] | None = None,
        settings: BrokerConfig = QUICK,
        **config: object,
    ) -> None:
        self.id = BrokerId(broker_id)
        self.directory = directory
        self.trio = trio
        self.epoch = 1
        self.is_registered = True
        self.config = log_config(**config)
        self.settings = settings.with_changes({})
        self.rack: str | None = None
        self.configs = _Configs()
        self.files = files or RealFiles()
        self.background: Background = background or InlineBackground()
        self._lease_expires_ms = lease_expires_ms
        self.channel: Channel

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.clock = SystemClock()
        self.metrics = Metrics()
        self.metadata = MetadataCache("cluster")
        self._scheduler = LoopScheduler(loop)
        environment = Environment(
            self.files, self.clock, random.Random(self.id), self._scheduler, self.background, broker_config()
        )
        self.logs = LogManager(
            broker_config(log_dirs=self.directory),
            environment,
            lambda _: self.config,
            metrics=self.metrics,
        )
        self.logs.on_directory_failed.append(self._directory_failed)
        self.logs.open()
        timer = Timer(self.clock)
        self._driver = TimerDriver(loop, self.clock, timer)
        self._threads = ThreadBackground(loop, 1)
        self._tasks = ReplicationTasks(self.trio.store, self._open_channel)
        self.replicas = ReplicaManager(
            self.id,
            self.logs,
            self.clock,
            timer,
            self.metrics,
            isr_store=self._tasks,
            connect=self._tasks.connect,
            metadata=self.metadata,
            lease=(
                None
                if self._lease_expires_ms is None
                else LeadershipLease(self.clock, self._lease_expires_ms, lambda: self.registered_epoch)
            ),
            broker_epoch=lambda: self.epoch,
            scheduler=self._scheduler,
            background=self._threads,
            config=self.settings,
        )
        services = Services(
            broker_id=self.id,
            cluster_id="cluster",
            config=cast("Any", _Settings()),
            clock=self.clock,
            apis=APIS,
            features={},
            znodes=cast("Any", None),
            metadata=self.metadata,
            replicas=self.replicas,
            fetch_sessions=FetchSessionCache(
                100, self.clock, random.Random(self.id), self.metrics, self.replicas.delayed.subscriptions
            ),
            topics=cast("Any", None),
            configs=cast("Any", self.configs),
            quotas=unlimited(),
            producer_ids=cast("Any", None),
            groups=cast("Any", None),
            transactions=cast("Any", None),
            add_partitions_to_txn_manager=cast("Any", None),
            markers=cast("Any", None),
            internal_topics=cast("Any", None),
            controller=cast("Any", None),
            metadata_wait=cast("Any", None),
            authorizer=AllowAll(),
            acls=None,
            address_of=cast("Any", None),
            telemetry=cast("Any", None),
        )
        self._dispatcher = Dispatcher(APIS, services, self.clock, self.metrics)
        self._server = Server(
            clock=self.clock,
            scheduler=self._scheduler,
            metrics=self.metrics,
            config=broker_config(),
            background=InlineBackground(),
        )
        (listener,) = self._server.bind([ListenerEndpoint("PLAINTEXT", Endpoint("127.0.0.1", 0))])
        self.address = listener.bound.endpoint
        self._server.start(loop, self._dispatcher.dispatch)
        self.replicas.start()
        self.channel = await Channel.connect(self.address)
        self.trio.up[self.id] = self

    @property
    def registered_epoch(self) -> int | None:
        return self.epoch if self.is_registered else None

    def _directory_failed(self, directory: LogDirectory) -> None:
        self.replicas.local.directory_failed(directory)

    async def stop(self, *, clean: bool = True) -> None:
        if self.trio.up.pop(self.id, None) is None:
            return
        self.channel.close()
        self.replicas.close()
        await self._tasks.close()
        await self._threads.close()
        await self._server.stop()
        await self._dispatcher.close()
        self._driver.close()
        self._scheduler.close()
        if clean:
            self.logs.close()
        else:
            self.logs.abandon()

    async def kill(self) -> None:
        """Gone without a word: nothing is flushed, nothing is closed in order."""
        await self.stop(clean=False)

    async def restart(self) -> None:
        self.epoch += 1
        await self.start()

    async def _open_channel(self, broker_id: BrokerId) -> Channel:
        other = self.trio.up.get(broker_id)
        if other is None or (self.id, broker_id) in self.trio.cut:
            raise NetworkException(f"broker {broker_id} cannot be reached")
        channel = await Channel.connect(other.address, client_id=f"broker-{self.id}-fetcher")
        self.trio.links.setdefault((self.id, broker_id), []).append(channel)
        return channel

    # -- looking ------------------------------------------------------------------------------

    def partition(self, key: TopicPartition = ZERO) -> Partition:
        found = self.replicas.find(key)
        assert found is not None
        return found

    def end(self, key: TopicPartition = ZERO) -> int:
        return self.partition(key).log.log_end_offset

    def bytes_of(self, key: TopicPartition = ZERO) -> bytes:
        """The whole log as it is on disk."""
        home = self.directory / str(key)
        return b"".join(each.read_bytes() for each in sorted(home.glob("*.log")))

    # -- asking -------------------------------------------------------------------------------

    async def ask(
        self, request: Message, response_class: type[Response], version_max: int | None = None
    ) -> Response:
        return await self.channel.send(request, response_class, version_max=version_max)

    async def produce(
        self,
        *values: bytes,
        key: TopicPartition = ZERO,
        acks: int = -1,
        timeout_ms: int = 30_000,
        **fields: Any,
    ) -> produce.PartitionProduceResponse:
        batch = build_batch([(None, value, (), self.clock.now_ms()) for value in values], **fields)
        data = produce.PartitionProduceData(index=key.partition, records=bytes(batch))
        request = produce.ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[produce.TopicProduceData(name=key.topic, partition_data=[data])],
        )
        answer = await self.ask(request, produce.ProduceResponse, 12)
        return answer.responses[0].partition_responses[0]

    async def fetch(
        self,
        offset: int,
        *,
        key: TopicPartition = ZERO,
        max_wait_ms: int = 0,
        rack_id: str = "",
        version: int = 12,
        leader_epoch: int = -1,
    ) -> fetch.PartitionData:
        ask = fetch.FetchPartition(
            partition=key.partition,
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
            current_leader_epoch=leader_epoch,
        )
        request = fetch.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            session_epoch=-1,
            rack_id=rack_id,
            topics=[fetch.FetchTopic(topic=key.topic, partitions=[ask])],
        )
        answer = await self.ask(request, fetch.FetchResponse, version)
        return answer.responses[0].partitions[0]


class Trio:
    """The brokers, and the controller that the test plays."""

    def __init__(self) -> None:
        self.store = MemoryIsrStore()
        self.members: dict[int, Member] = {}
        self.up: dict[int, Member] = {}
        self.cut: set[tuple[int, int]] = set()
        self.links: dict[tuple[int, int], list[Channel]] = {}
        self.controller_epoch = 1

    def __getitem__(self, broker_id: int) -> Member:
        return self.members[broker_id]

    def cut_link(self, follower: int, leader: int) -> None:
        """The follower can no longer reach the leader."""
        self.cut.add((follower, leader))
        for channel in self.links.pop((follower, leader), ()):
            channel.close("cut")

    def mend_link(self, follower: int, leader: int) -> None:
        self.cut.discard((follower, leader))

    async def lead(
        self,
        leader: int,
        epoch: int,
        *,
        isr: Sequence[int] | None = None,
        replicas: Sequence[int] | None = None,
        keys: Sequence[TopicPartition] = (ZERO,),
        tell: Iterable[int] | None = None,
    ) -> dict[int, leader_and_isr.LeaderAndIsrResponse]:
        """Elect a leader, in the store and at every broker that is up (or those of `tell`)."""
        assigned = list(replicas or sorted(self.members))
        for key in keys:
            known = self.store.states.get(key)
            self.store.states[key] = PartitionState(
                leader=leader,
                leader_epoch=epoch,
                isr=tuple(assigned if isr is None else isr),
                controller_epoch=self.controller_epoch,
                state_version=0 if known is None else known.state_version + 1,
            )
        await self.tell_metadata(keys, assigned)
        told = list(self.up) if tell is None else list(tell)
        answers = {}
        for broker_id in told:
            if broker_id in assigned:
                answers[broker_id] = await self.up[broker_id].ask(
                    self.order(keys, assigned, self.up[broker_id].epoch), leader_and_isr.LeaderAndIsrResponse
                )
        return answers

    def order(
        self, keys: Sequence[TopicPartition], replicas: Sequence[int], broker_epoch: int, **fields: Any
    ) -> leader_and_isr.LeaderAndIsrRequest:
        return leader_and_isr.LeaderAndIsrRequest(
            controller_id=9,
            controller_epoch=self.controller_epoch,
            broker_epoch=broker_epoch,
            type=1,
            topic_states=[
                leader_and_isr.LeaderAndIsrTopicState(
                    topic_name=topic,
                    topic_id=TOPIC_ID,
                    partition_states=[
                        leader_and_isr.LeaderAndIsrPartitionState(
                            partition_index=key.partition,
                            controller_epoch=self.controller_epoch,
                            leader=self.store.states[key].leader,
                            leader_epoch=self.store.states[key].leader_epoch,
                            isr=list(self.store.states[key].isr),
                            partition_epoch=self.store.states[key].state_version,
                            replicas=list(replicas),
                            is_new=True,
                        )
                        for key in keys
                        if key.topic == topic
                    ],
                )
                for topic in {key.topic for key in keys}
            ],
            **fields,
        )

    async def tell_metadata(self, keys: Sequence[TopicPartition], replicas: Sequence[int]) -> None:
        for member in self.up.values():
            request = update_metadata.UpdateMetadataRequest(
                controller_id=9,
                controller_epoch=self.controller_epoch,
                broker_epoch=member.epoch,
                topic_states=[
                    update_metadata.UpdateMetadataTopicState(
                        topic_name=key.topic,
                        topic_id=TOPIC_ID,
                        partition_states=[
                            update_metadata.UpdateMetadataPartitionState(
                                partition_index=key.partition,
                                controller_epoch=self.controller_epoch,
                                leader=self.store.states[key].leader,
                                leader_epoch=self.store.states[key].leader_epoch,
                                isr=list(self.store.states[key].isr),
                                replicas=list(replicas),
                            )
                        ],
                    )
                    for key in keys
                ],
                live_brokers=[
                    update_metadata.UpdateMetadataBroker(
                        id=each.id,
                        endpoints=[
                            update_metadata.UpdateMetadataEndpoint(
                                host=each.address.host, port=each.address.port, listener="PLAINTEXT"
                            )
                        ],
                        rack=each.rack,
                    )
                    for each in self.up.values()
                ],
            )
            answer = await member.ask(request, update_metadata.UpdateMetadataResponse)
            assert answer.error_code == 0

    async def stop_replica(
        self, broker_id: int, *, delete: bool, epoch: int = -2, key: TopicPartition = ZERO
    ) -> stop_replica.StopReplicaResponse:
        request = stop_replica.StopReplicaRequest(
            controller_id=9,
            controller_epoch=self.controller_epoch,
            broker_epoch=self[broker_id].epoch,
            topic_states=[
                stop_replica.StopReplicaTopicState(
                    topic_name=key.topic,
                    partition_states=[
                        stop_replica.StopReplicaPartitionState(
                            partition_index=key.partition, leader_epoch=epoch, delete_partition=delete
                        )
                    ],
                )
            ],
        )
        return await self[broker_id].ask(request, stop_replica.StopReplicaResponse)


@asynccontextmanager
async def trio(directory: Path, count: int = 3, **options: Any) -> AsyncIterator[Trio]:
    """Brokers 1, 2, … with nothing on them."""
    cluster = Trio()
    for number in range(1, count + 1):
        cluster.members[number] = Member(number, directory / f"broker-{number}", cluster, **options)
    try:
        for member in cluster.members.values():
            await member.start()
        yield cluster
    finally:
        for member in list(cluster.up.values()):
            await member.stop()


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait, however slow the machine is, until the condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - many things may make it true
            await asyncio.sleep(0.005)


def broker_info(member: Member, rack: str | None) -> BrokerInfo:
    return BrokerInfo(member.id, (ListenerEndpoint("PLAINTEXT", member.address),), rack)
