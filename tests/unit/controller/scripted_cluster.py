"""Scripted brokers that carry out requests and record them, around real controllers on one real store.

Each broker has its own session and its own controller. A broker's channel answers as a broker would: it
refuses requests of an older controller or for an earlier registration.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from barnabas.cluster.coordination.contract import Coordination
from barnabas.cluster.embedded.session import EmbeddedSession, EmbeddedStore
from barnabas.cluster.metadata.cache import MetadataCache, PartitionMetadata
from barnabas.cluster.stores.config_store import ZnodeConfigStore
from barnabas.cluster.stores.registration import Registration, make_persistent_paths
from barnabas.cluster.stores.topics import create_topic, mark_for_deletion, read_partition_states
from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.cluster.znodes.layout import PartitionState, PartitionStateZnode
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.controller.controller import KafkaController
from barnabas.controller.events import EventQueue
from barnabas.controller.term import Term
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.errors import (
    KafkaStorageError,
    NetworkException,
    StaleBrokerEpoch,
    StaleControllerEpoch,
)
from barnabas.core.files import RealFiles
from barnabas.core.ids import BrokerId, TopicPartition, Uuid
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import InlineBackground
from barnabas.node.membership.controller_channels import ControllerChannels
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.protocol.schema.message import Message
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.settings import broker_config

Response = TypeVar("Response", bound=Message)

QUIET_TURNS = 30
WAITING_TURNS = 500


async def set_partition_state(
    znodes: Coordination, topic: str, partition: int, state: PartitionState
) -> None:
    """Write the ISR as a leader does: on condition that the state has not changed."""
    path = PartitionStateZnode.path(topic, partition)
    await znodes.set(path, PartitionStateZnode.encode(state), state.state_version)


class ScriptedBroker:
    """One broker: the requests that it received, and their effects."""

    def __init__(self, broker_id: int, cluster: Cluster) -> None:
        self.id = broker_id
        self._cluster = cluster
        self.epoch = -1
        self.controller_epoch = 0
        self.requests: list[Message] = []
        self.roles: dict[TopicPartition, Any] = {}
        """The LeaderAndIsr state of each replica that the broker has."""
        self.metadata: dict[TopicPartition, Any] = {}
        self.known_brokers: set[int] = set()
        self.deleted: set[TopicPartition] = set()
        self.offline: set[TopicPartition] = set()
        """On a failed disk."""
        self.deletion_error = 0
        self.cache: MetadataCache | None = None
        """Metadata that handlers of this broker would read."""
        self.is_reachable = True
        self.sends = 0

    async def answer(self, request: Message) -> Message:
        self.sends += 1
        if not self.is_reachable:
            raise NetworkException("unplugged")
        self.requests.append(request)
        self._cluster.turns += 1
        error = self._fence(request)
        match request:
            case LeaderAndIsrRequest():
                return self._leader_and_isr(request, error)
            case UpdateMetadataRequest():
                return self._update_metadata(request, error)
            case StopReplicaRequest():
                return self._stop_replica(request, error)
        raise AssertionError(request)

    def _fence(self, request: Any) -> int:
        if request.controller_epoch < self.controller_epoch:
            return StaleControllerEpoch.code
        if request.broker_epoch < self.epoch:
            return StaleBrokerEpoch.code
        self.controller_epoch = request.controller_epoch
        return 0

    def _leader_and_isr(self, request: LeaderAndIsrRequest, error: int) -> LeaderAndIsrResponse:
        topics = []
        for topic in request.topic_states:
            errors = []
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                code = KafkaStorageError.code if partition in self.offline else 0
                former = self.roles.get(partition)
                if not error and not code and (former is None or former.leader_epoch <= state.leader_epoch):
                    self.roles[partition] = state
                errors.append(
                    LeaderAndIsrPartitionError(partition_index=partition.partition, error_code=code)
                )
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return LeaderAndIsrResponse(error_code=error, topics=topics)

    def _update_metadata(self, request: UpdateMetadataRequest, error: int) -> UpdateMetadataResponse:
        if not error:
            self._update_cache(request)
            self.known_brokers = {broker.id for broker in request.live_brokers}
            for topic in request.topic_states:
                for state in topic.partition_states:
                    partition = TopicPartition(topic.topic_name, state.partition_index)
                    if state.leader == -2:
                        self.metadata.pop(partition, None)
                    else:
                        self.metadata[partition] = state
        return UpdateMetadataResponse(error_code=error)

    def _update_cache(self, request: UpdateMetadataRequest) -> None:
        cache = self.cache
        if cache is None:
            return
        cache.put_brokers([BrokerInfo(broker.id, ()) for broker in request.live_brokers])
        for topic in request.topic_states:
            known = cache.topic(topic.topic_name)
            partitions = {} if known is None else {each.partition: each for each in known.partitions}
            for state in topic.partition_states:
                partitions[state.partition_index] = PartitionMetadata(
                    state.partition_index,
                    tuple(state.replicas),
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=tuple(state.isr),
                )
            if any(each.leader == -2 for each in partitions.values()):
                cache.remove_topic(topic.topic_name)
            else:
                cache.put_topic(topic.topic_name, topic.topic_id, partitions.values())

    def _stop_replica(self, request: StopReplicaRequest, error: int) -> StopReplicaResponse:
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                code = self.deletion_error if state.delete_partition else 0
                if not error and not code:
                    self.roles.pop(partition, None)
                    if state.delete_partition:
                        self.deleted.add(partition)
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=partition.partition, error_code=code
                    )
                )
        return StopReplicaResponse(error_code=error, partition_errors=errors)

    def of_kind(self, kind: type[Response]) -> list[Response]:
        return [request for request in self.requests if isinstance(request, kind)]


class ScriptedChannel:
    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self.is_closed = False

    async def send(self, request: Message, response_class: type[Response]) -> Response:
        await asyncio.sleep(0)
        response = await self._broker.answer(request)
        assert isinstance(response, response_class)
        return response

    def close(self) -> None:
        self.is_closed = True


def is_idle(queue: EventQueue) -> bool:
    """Whether no event of the controller is queued or running."""
    return not queue._events and not queue._is_processing


class Member:
    """A broker's own end: its session, its settings, its controller."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.session: EmbeddedSession = cluster.store.connect()
        self.metrics = Metrics()
        self.configs = ConfigRepository(
            ZnodeConfigStore(self.session),
            BrokerId(broker_id),
            BrokerConfig.load(cluster.static),
        )
        self.controller = KafkaController(
            self.session,
            BrokerId(broker_id),
            self.configs,
            cluster.clock,
            cluster.scheduler,
            cluster.randomness,
            cluster.channels.start_sender,
            self.metrics,
            cluster.settings,
        )


class Cluster:
    def __init__(
        self,
        path: Path,
        stack: AsyncExitStack,
        *,
        settings: BrokerConfig | None = None,
        static: Mapping[str, str] | None = None,
        seed: int = 7,
    ) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.randomness = random.Random(seed)
        self.channels = ControllerChannels(self.connect, self.clock, self.scheduler)
        self.settings = (settings or broker_config()).with_changes({"zookeeper.connect": "shared:2181"})
        self.static = dict(static or {})
        path.mkdir(exist_ok=True)
        self.store = EmbeddedStore.open(RealFiles(), str(path), self.clock, InlineBackground())
        self.brokers: dict[int, ScriptedBroker] = {}
        self.members: dict[int, Member] = {}
        self.turns = 0
        self.admin = self.store.connect()
        stack.push_async_callback(self.close)

    async def start(self, *broker_ids: int) -> None:
        await make_persistent_paths(self.admin)
        for broker_id in broker_ids:
            await self.up(broker_id)
        await self.settle()

    async def up(self, broker_id: int) -> Member:
        """A broker registers, and its controller competes."""
        member = Member(self, broker_id)
        await member.configs.load()
        self.brokers.setdefault(broker_id, ScriptedBroker(broker_id, self))
        await self.register(member)
        self.members[broker_id] = member
        await member.controller.start()
        return member

    async def register(self, member: Member) -> None:
        endpoint = ListenerEndpoint("PLAINTEXT", Endpoint("192.0.2.1", 9_000 + member.id))
        registration = Registration(member.session, self.clock, self.scheduler)
        present = await registration.register(BrokerInfo(member.id, (endpoint,)))
        self.brokers[member.id].epoch = present.epoch

    async def down(self, broker_id: int) -> None:
        """Kill the broker's process: its session ends without a controlled shutdown."""
        member = self.members.pop(broker_id)
        self.brokers[broker_id].roles.clear()
        member.session.lose()
        member.controller.session_expired()
        await self._close(member)
        ended = self.store.end_session(member.session.session_id)
        await member.session.close()
        await ended

    async def kill(self, broker_id: int) -> None:
        await self.down(broker_id)
        await self.settle()

    async def bounce(self, broker_id: int) -> None:
        """Restart the broker before the controller looks: only the broker epoch shows it."""
        member = self.members[broker_id]
        broker = self.brokers[broker_id]
        broker.roles.clear()
        await member.session.delete(f"/brokers/ids/{broker_id}")
        await self.register(member)
        await self.settle()

    async def connect(self, broker: BrokerInfo) -> ScriptedChannel:
        target = self.brokers[broker.id]
        if not target.is_reachable:
            target.sends += 1
            raise NetworkException("unplugged")
        return ScriptedChannel(target)

    async def settle(self) -> None:
        """Run until only the passing of time could cause another event."""
        quiet = waiting = 0
        seen = (-1, -1)
        while quiet < QUIET_TURNS and waiting < WAITING_TURNS:
            await asyncio.sleep(0)
            is_busy = any(not is_idle(member.controller.events) for member in self.members.values())
            now = (self.turns, self.store._tree.zxid)
            waiting = 0 if now != seen else waiting + 1
            quiet = 0 if is_busy or now != seen else quiet + 1
            seen = now

    async def advance(self, ms: float) -> None:
        self.clock.advance(ms)
        self.scheduler.run_due()
        await self.settle()

    async def close(self) -> None:
        for member in self.members.values():
            await self._close(member)
        await self.channels.close()
        await self.store.close()

    async def _close(self, member: Member) -> None:
        """A broker that does not answer is not waited for long: time passes meanwhile."""
        closing = asyncio.ensure_future(member.controller.close())
        while not closing.done():
            await asyncio.sleep(0)
            self.clock.advance(1)
            self.scheduler.run_due()
        await closing

    # Looking

    @property
    def active(self) -> Member:
        (active,) = [member for member in self.members.values() if member.controller.is_active]
        return active

    @property
    def term(self) -> Term:
        term = self.active.controller.term
        assert term is not None
        return term

    async def state(self, topic: str, partition: int = 0) -> PartitionState:
        return (await read_partition_states(self.admin, topic, [partition]))[partition]

    def forget_requests(self) -> None:
        for broker in self.brokers.values():
            broker.requests.clear()

    # Doing

    async def create(
        self,
        topic: str,
        assignment: Mapping[int, Sequence[int]],
        config: Mapping[str, str] | None = None,
    ) -> Uuid:
        topic_id = Uuid.generate(self.randomness)
        await create_topic(self.admin, topic, topic_id, assignment, config or {})
        await self.settle()
        return topic_id

    async def delete(self, topic: str) -> None:
        await mark_for_deletion(self.admin, topic)
        await self.settle()

    async def exists(self, path: str) -> bool:
        return await self.admin.exists(path) is not None
