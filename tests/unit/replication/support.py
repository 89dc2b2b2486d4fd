"""Replica manager over real logs, with a manual clock and disk."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.files import Files, RealFiles
from barnabas.core.ids import BrokerId, TopicPartition, Uuid
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import Background, InlineBackground
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.purgatory.timer import Timer
from barnabas.records.batch import iterate_batches
from barnabas.replication.follower.connection import OpenConnection
from barnabas.replication.leader.delayed_produce import PendingAck
from barnabas.replication.leader.delayed_requests import Defer
from barnabas.replication.leader.isr_changes import IsrStore
from barnabas.replication.partition.fetching import FetchParams, PartitionFetch, PartitionRead
from barnabas.replication.partition.leadership import LeaderAndIsr
from barnabas.replication.partition.lease import LeadershipLease
from barnabas.replication.partition.partition import Partition
from barnabas.replication.partition.remote_replica import NO_BROKER_EPOCH
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.log.parts.append import AppendInfo
from barnabas.storage.log_manager import LogManager
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.settings import broker_config, log_config
from tests.unit.storage.support import NOW_MS, batch

ME = BrokerId(1)
OTHER = BrokerId(2)
ZERO = TopicPartition("topic", 0)
ONE = TopicPartition("topic", 1)
TOPIC_ID = Uuid(bytes(range(16)))


class AwaitedAck(PendingAck):
    """One append that a producer waits for; counts the responses."""

    responses = 0


class Replicas(ReplicaManager):
    """Leads each partition that `lead` is called with, in the directories `roots`."""

    def __init__(
        self,
        *roots: str,
        files: Files | None = None,
        background: Background | None = None,
        settings: BrokerConfig | None = None,
        store: IsrStore | None = None,
        connect: OpenConnection | None = None,
        lease: Callable[[ManualClock], LeadershipLease] | None = None,
        defer: Defer = lambda work: work(),
        **config: object,
    ) -> None:
        """With a `store` it keeps the ISR there."""
        self.log_config = log_config(**config)
        self.clock = ManualClock(NOW_MS)
        self.scheduler = ManualScheduler(self.clock)
        self.dead: set[BrokerId] = set()
        """Brokers that the controller says are gone."""
        self.wakes: list[float] = []
        self.timer = Timer(self.clock, wake=self.wakes.append)
        environment = Environment(
            files or RealFiles(),
            self.clock,
            random.Random(7),
            self.scheduler,
            background or InlineBackground(),
            broker_config(),
        )
        logs = LogManager(
            broker_config(log_dirs=",".join(roots)),
            environment,
            lambda _: self.log_config,
            metrics=Metrics(),
        )
        logs.on_directory_failed.append(self._failed)
        super().__init__(
            ME,
            logs,
            self.clock,
            self.timer,
            Metrics(),
            isr_store=store,
            connect=connect,
            metadata=cast("MetadataCache", SimpleNamespace(is_live=lambda each: each not in self.dead)),
            lease=None if lease is None else lease(self.clock),
            scheduler=self.scheduler,
            background=background or InlineBackground(),
            config=settings or broker_config(),
            defer=defer,
        )
        logs.open()
        self.answered: list[list[PartitionRead]] = []
        """Results of `ask`, one for each response."""

    def _failed(self, directory: LogDirectory) -> None:
        self.local.directory_failed(directory)

    def lead(
        self,
        key: TopicPartition = ZERO,
        *,
        epoch: int = 0,
        isr: Sequence[BrokerId] = (ME,),
        replicas: Sequence[BrokerId] = (ME, OTHER),
    ) -> Partition:
        partition = self.local.get_or_create(key, TOPIC_ID, config=self.log_config)
        state = LeaderAndIsr(self.broker_id, epoch, tuple(replicas), isr)
        self.local.elected(partition, is_new=partition.become_leader(state))
        return self.partition(*key)

    def order(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Response to a LeaderAndIsr, where nothing is deferred."""
        answers: list[LeaderAndIsrResponse] = []
        failures: list[Exception] = []
        self.become_leader_or_follower(request, answers.append, failures.append)
        assert not failures
        (answer,) = answers
        return answer

    def append(self, partition: Partition, *values: bytes, acks: int = 1, **fields: Any) -> AppendInfo:
        info = partition.append(memoryview(batch(values or (b"value",), **fields)), acks)
        self.delayed.wake(partition.topic_partition)
        return info

    def fetched(
        self,
        partition: Partition,
        broker_id: BrokerId,
        offset: int,
        start_offset: int = 0,
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> None:
        """A follower fetches from `offset`."""
        self.reader.update_follower(partition, broker_id, offset, start_offset, broker_epoch)

    def await_ack(
        self, partition: Partition, info: AppendInfo, acks: int, timeout_ms: float = 1_000
    ) -> AwaitedAck:
        """Wait until the append is as safe as `acks` asks, or for the timeout."""
        ack = AwaitedAck(partition, info.last_offset + 1)

        def respond() -> None:
            assert not ack.responses, "answered twice"
            ack.responses += 1

        self.await_acks(timeout_ms, acks, [ack], respond)
        return ack

    def ask(self, *asks: PartitionFetch, **params: int | bool) -> None:
        """Fetch; `answered` grows now or later."""
        asked = fetch_params(**params)
        self.answer_or_wait(asked, asks, self.reader.read(asked, asks), self.answered.append)

    def pass_time(self, ms: float) -> None:
        self.clock.advance(ms)
        self.timer.advance()


def fetch_params(**changed: int | bool) -> FetchParams:
    settings: dict[str, int | bool] = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "read_committed": False,
    }
    return FetchParams(**(settings | changed))  # type: ignore[arg-type]


def at(
    offset: int,
    key: TopicPartition = ZERO,
    *,
    max_bytes: int = 1 << 20,
    epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> PartitionFetch:
    return PartitionFetch(
        key.topic, TOPIC_ID, key.partition, offset, max_bytes, epoch, last_fetched_epoch, log_start_offset=0
    )


def is_answered(ack: AwaitedAck) -> bool:
    return ack.responses == 1


def offsets_of(read: PartitionRead) -> list[tuple[int, int]]:
    """First and last offset of each batch that was read."""
    if read.records is None:
        return []
    return [(each.base_offset, each.last_offset) for each in iterate_batches(read.records.read())]
