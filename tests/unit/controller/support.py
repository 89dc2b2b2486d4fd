"""The controller of one broker, started and restarted over one directory."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace

from barnabas.cluster.broker_znodes import BrokerInfo
from barnabas.cluster.config_store import ZnodeConfigStore
from barnabas.cluster.embedded import EmbeddedStore
from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.cluster.registration import make_persistent_paths
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.log_config import LogConfig
from barnabas.config.repository import ConfigRepository
from barnabas.config.rows import BROKER_KEYS
from barnabas.controller.election import become_controller
from barnabas.controller.local_partitions import LocalPartitions
from barnabas.controller.topic_admin import TopicAdmin
from barnabas.core.clock import ManualClock
from barnabas.core.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.errors import KafkaError, UnknownTopicOrPartition
from barnabas.core.files import RealFiles
from barnabas.core.ids import BrokerId, TopicPartition, Uuid
from barnabas.core.scheduler import InlineBackground
from barnabas.storage.environment import LogDirectory
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
        self.size_bytes = 10 * (1 + topic_partition.partition)
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
    """Leads what it is told to lead, except what is in `broken`."""

    def __init__(self, disk: FakeDisk) -> None:
        self.log_manager = disk
        self.led: dict[TopicPartition, SimpleNamespace] = {}
        self.forgotten: list[str] = []
        self.broken: Mapping[TopicPartition, KafkaError] = {}

    def become_leader(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        leader_epoch: int,
        replicas: Sequence[BrokerId],
        isr: Sequence[BrokerId],
        config: LogConfig,
    ) -> None:
        if topic_partition in self.broken:
            raise self.broken[topic_partition]
        log = self.log_manager.found.setdefault(topic_partition, FakeLog(topic_partition))
        log.topic_id, log.config = topic_id, config
        log.leader_epochs.latest_epoch = leader_epoch
        self.led[topic_partition] = SimpleNamespace(
            log=log, leader_epoch=leader_epoch, replicas=list(replicas), isr=list(isr)
        )

    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        if self.led.pop(topic_partition, None) is not None and delete:
            self.log_manager.delete(topic_partition)

    def forget_topic(self, topic: str) -> None:
        self.forgotten.append(topic)

    def update_log_config(self, topic: str, config: LogConfig) -> None:
        for topic_partition, led in self.led.items():
            if topic_partition.topic == topic:
                led.log.config = config

    def partition(self, topic: str, index: int) -> SimpleNamespace:
        led = self.led.get(TopicPartition(topic, index))
        if led is None:
            raise UnknownTopicOrPartition(f"this broker has no partition {topic}-{index}")
        return led


class Admin:
    """Everything administrative of one broker; `restart` is a kill and a new start."""

    def __init__(self, path: Path, stack: AsyncExitStack, static: Mapping[str, str] | None = None) -> None:
        self.clock = ManualClock()
        self.randomness = random.Random(7)
        self.disk = FakeDisk()
        self.static = dict(static or {})
        self._path = path / "coordination"
        self._path.mkdir()
        self._store: EmbeddedStore | None = None
        stack.push_async_callback(self.stop)

    async def start(self) -> None:
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
        endpoint = ListenerEndpoint("PLAINTEXT", Endpoint("192.0.2.9", 9092))
        self.metadata.put_brokers([BrokerInfo(BROKER_ID, (endpoint,), "rack-a")])
        self.metadata.put_controller(BROKER_ID)
        self.replicas = FakeReplicas(self.disk)
        self.configs.on_topic_change(self.replicas.update_log_config)
        self.controllership = await become_controller(self.znodes, BROKER_ID, self.clock)
        local = LocalPartitions(BROKER_ID, self.replicas)
        self.topics = TopicAdmin(
            self.znodes, self.controllership, self.configs, self.metadata, local, self.randomness
        )

    async def load(self) -> None:
        await self.topics.load(self.disk)

    async def stop(self) -> None:
        if self._store is not None:
            await self._store.close()
            self._store = None

    async def restart(self) -> None:
        await self.stop()
        await self.start()
        await self.load()

    def led(self, topic: str, partition: int = 0) -> SimpleNamespace:
        return self.replicas.led[TopicPartition(topic, partition)]
