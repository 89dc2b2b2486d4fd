"""A broker that is alone, and so the controller, started and restarted over one directory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Generator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from barnabas.administration.disk_import import DiskImport
from barnabas.administration.metadata_wait import MetadataWait
from barnabas.administration.topics import TopicAdministration
from barnabas.cluster.embedded.session import EmbeddedStore
from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.cluster.stores.config_store import ZnodeConfigStore
from barnabas.cluster.stores.registration import Registration, make_persistent_paths
from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.config.log_config import LogConfig
from barnabas.controller.controller import KafkaController
from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.errors import KafkaError, KafkaStorageError, UnknownTopicOrPartition
from barnabas.core.files import RealFiles
from barnabas.core.ids import BrokerId, TopicPartition, Uuid
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import InlineBackground
from barnabas.node.membership.controller_channels import ControllerChannels
from barnabas.node.membership.local_channel import OwnBroker
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
from barnabas.storage.directory.kraft_metadata import KraftMetadata, UnreadableMetadata
from barnabas.storage.files.environment import LogDirectory
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.settings import log_config

BROKER_ID = BrokerId(1)


class FakeLog:
    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid | None = None,
        *,
        latest_epoch: int = -1,
        directory: LogDirectory | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.leader_epochs = SimpleNamespace(latest_epoch=latest_epoch)
        self.log_directory = directory or LogDirectory("/data")
        self.segments = SimpleNamespace(size_bytes=10 * (1 + topic_partition.partition))
        self.producers: list[object] = []
        self.config = log_config()

    def active_producers(self) -> list[object]:
        return self.producers


class FakeDisk:
    """The logs of a broker; survives its restarts."""

    def __init__(self) -> None:
        self.directories = [LogDirectory("/data")]
        self.found: dict[TopicPartition, FakeLog] = {}
        self.damaged: dict[TopicPartition, object] = {}
        self.deleted: list[TopicPartition] = []
        self.producer_id_seen = -1
        self.metadata: KraftMetadata | UnreadableMetadata | None = None
        self.metadata_adopted: KraftMetadata | None = None
        self.ages_ms: dict[str, int] = {}
        """Age of the oldest records by topic."""
        self.strays: list[TopicPartition] = []

    @property
    def offline_directories(self) -> list[LogDirectory]:
        return [each for each in self.directories if each.failure is not None]

    def logs(self) -> list[FakeLog]:
        return list(self.found.values())

    def futures(self) -> list[FakeLog]:
        return []

    def get(self, topic_partition: TopicPartition) -> FakeLog | None:
        return self.found.get(topic_partition)

    def future(self, topic_partition: TopicPartition) -> None:
        return None

    def largest_producer_id(self) -> int:
        return self.producer_id_seen

    def kraft_metadata(self) -> KraftMetadata | None:
        if isinstance(self.metadata, UnreadableMetadata):
            raise self.metadata
        return self.metadata

    def note_kraft_metadata_adopted(self, metadata: KraftMetadata) -> None:
        self.metadata_adopted = metadata

    def would_delete(self, topic: str, retention_ms: int) -> bool:
        return self.ages_ms.get(topic, 0) > retention_ms

    def add(
        self, topic: str, partition: int, topic_id: Uuid | None = None, *, latest_epoch: int = -1
    ) -> None:
        topic_partition = TopicPartition(topic, partition)
        self.found[topic_partition] = FakeLog(topic_partition, topic_id, latest_epoch=latest_epoch)

    def delete(self, topic_partition: TopicPartition) -> None:
        self.deleted.append(topic_partition)
        del self.found[topic_partition]

    def set_aside_stray(self, topic_partition: TopicPartition) -> None:
        self.strays.append(topic_partition)
        del self.found[topic_partition]


class FakeReplicas:
    """Leads the partitions that it receives, except those in `broken`."""

    def __init__(self, disk: FakeDisk, configs: ConfigRepository) -> None:
        self.log_manager = disk
        self.configs = configs
        self.led: dict[TopicPartition, SimpleNamespace] = {}
        self.forgotten: list[str] = []
        self.table = SimpleNamespace(
            forget_topic=self.forgotten.append, update_log_config=self._update_log_config
        )
        self.broken: Mapping[TopicPartition, KafkaError] = {}

    def check_controller(self, controller_epoch: int, broker_epoch: int) -> None:
        """There is one controller, and one life of this broker."""

    def become_leader_or_follower(
        self,
        request: LeaderAndIsrRequest,
        done: Callable[[LeaderAndIsrResponse], None],
        failed: Callable[[Exception], None],
    ) -> None:
        slices = self._lead_all(request)

        def go_on() -> None:
            try:
                next(slices)
            except StopIteration as end:
                done(end.value)
            else:
                asyncio.get_running_loop().call_soon(go_on)

        go_on()

    def _lead_all(self, request: LeaderAndIsrRequest) -> Generator[None, None, LeaderAndIsrResponse]:
        topics = []
        for topic in request.topic_states:
            errors = []
            for count, state in enumerate(topic.partition_states, 1):
                errors.append(
                    LeaderAndIsrPartitionError(
                        partition_index=state.partition_index,
                        error_code=self._lead(
                            TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state
                        ),
                    )
                )
                if count % 16 == 0:
                    yield
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return LeaderAndIsrResponse(topics=topics)

    def _lead(self, topic_partition: TopicPartition, topic_id: Uuid, state: Any) -> int:
        disk = self.log_manager
        if topic_partition in self.broken:
            return self.broken[topic_partition].code
        is_lost = topic_partition not in disk.found and not state.is_new and disk.offline_directories
        if is_lost or topic_partition in disk.damaged:
            return KafkaStorageError.code
        if state.leader != BROKER_ID:
            return 0
        log = disk.found.setdefault(topic_partition, FakeLog(topic_partition))
        log.topic_id, log.config = topic_id, self.configs.topic_config(topic_partition.topic)
        log.leader_epochs.latest_epoch = state.leader_epoch
        self.led[topic_partition] = SimpleNamespace(
            log=log, leader_epoch=state.leader_epoch, replicas=list(state.replicas), isr=list(state.isr)
        )
        return 0

    def stop_replicas(
        self,
        request: StopReplicaRequest,
        done: Callable[[StopReplicaResponse], None],
        failed: Callable[[Exception], None],
    ) -> None:
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                error_code = 0
                try:
                    self.stop_replica(
                        TopicPartition(topic.topic_name, state.partition_index), delete=state.delete_partition
                    )
                except KafkaError as error:
                    error_code = error.code
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name,
                        partition_index=state.partition_index,
                        error_code=error_code,
                    )
                )
        done(StopReplicaResponse(partition_errors=errors))

    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        self.led.pop(topic_partition, None)
        if delete and topic_partition in self.log_manager.found:
            self.log_manager.delete(topic_partition)

    def _update_log_config(self, topic: str, config: LogConfig) -> None:
        for topic_partition, led in self.led.items():
            if topic_partition.topic == topic:
                led.log.config = config

    def partition(self, topic: str, index: int) -> SimpleNamespace:
        led = self.led.get(TopicPartition(topic, index))
        if led is None:
            raise UnknownTopicOrPartition(f"this broker has no partition {topic}-{index}")
        return led


class Admin:
    """Everything administrative of a broker that is alone; `restart` is a kill and a new start."""

    def __init__(self, path: Path, stack: AsyncExitStack, static: Mapping[str, str] | None = None) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.randomness = random.Random(7)
        self.disk = FakeDisk()
        self.static = dict(static or {})
        self._path = path / "coordination"
        self._path.mkdir()
        self._store: EmbeddedStore | None = None
        stack.push_async_callback(self.stop)

    async def start(self) -> None:
        await self.open()
        await self.load()

    async def open(self) -> None:
        """State before the controller takes over."""
        self._store = EmbeddedStore.open(RealFiles(), str(self._path), self.clock, InlineBackground())
        self.znodes = self._store.connect()
        await make_persistent_paths(self.znodes)
        self.configs = ConfigRepository(
            ZnodeConfigStore(self.znodes),
            BROKER_ID,
            BrokerConfig(self.static, {**BROKER_KEYS.defaults(), **BROKER_KEYS.parse(self.static)}),
        )
        await self.configs.load()
        self.metadata = MetadataCache("the-cluster")
        self.metadata.on_topic_removed.append(lambda topic, _: self.configs.remove_topic(topic))
        self.replicas = FakeReplicas(self.disk, self.configs)
        self.configs.on_topic_change(self.replicas.table.update_log_config)
        self.channels = ControllerChannels(self._connect, self.clock, self.scheduler)
        self.controller = KafkaController(
            self.znodes,
            BROKER_ID,
            self.configs,
            self.clock,
            self.scheduler,
            self.randomness,
            self.channels.start_sender,
            Metrics(),
            BrokerConfig.load({"auto.leader.rebalance.enable": "false"}),
        )
        self.metadata_wait = MetadataWait(self.metadata, self.scheduler)
        self.topics = TopicAdministration(
            self.znodes,
            self.configs,
            self.metadata,
            self.randomness,
            self.scheduler,
            self.metadata_wait,
            is_alone=True,
        )
        endpoint = ListenerEndpoint("PLAINTEXT", Endpoint("192.0.2.9", 9092))
        registration = Registration(self.znodes, self.clock, self.scheduler)
        await registration.register(BrokerInfo(BROKER_ID, (endpoint,), "rack-a"))

    async def _connect(self, broker: BrokerInfo) -> OwnBroker:
        services: Any = SimpleNamespace(replicas=self.replicas, configs=self.configs, metadata=self.metadata)
        return OwnBroker(services)

    async def load(self) -> None:
        disk: Any = self.disk
        internal = {OFFSETS_TOPIC: {"cleanup.policy": "compact", "compression.type": "producer"}}
        await DiskImport(self.znodes, BROKER_ID, self.configs, self.randomness, disk, internal.get).run()
        await self.controller.start()
        await self.settle()

    async def settle(self) -> None:
        """Wait until this broker has carried out the controller's requests."""
        await self.controller.until_told(None)

    async def stop(self) -> None:
        if self._store is not None:
            await self.controller.close()
            await self.channels.close()
            await self._store.close()
            self._store = None

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def led(self, topic: str, partition: int = 0) -> SimpleNamespace:
        return self.replicas.led[TopicPartition(topic, partition)]
