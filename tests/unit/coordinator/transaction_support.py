"""Transaction coordinator on a log in memory, with partitions that only note their markers."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.coordinator.runtime.log import CoordinatorLog
from barnabas.coordinator.runtime.runtime import CoordinatorRuntime
from barnabas.coordinator.runtime.shard_context import RuntimeSettings
from barnabas.coordinator.runtime.timers import ShardTimers
from barnabas.coordinator.transaction.coordinator import TRANSACTION_TOPIC, TransactionCoordinator
from barnabas.coordinator.transaction.markers.cluster import ClusterMarkers
from barnabas.coordinator.transaction.markers.outcome import MarkerErrors, TransactionMarker
from barnabas.coordinator.transaction.shard import TransactionShard
from barnabas.coordinator.transaction.state.metadata import TransactionMetadata
from barnabas.coordinator.transaction.state.records import TransactionRecord
from barnabas.coordinator.transaction.state.settings import TransactionSettings
from barnabas.coordinator.transaction.state.states import EMPTY
from barnabas.coordinator.transaction.state.transaction_memory import transaction_memory_account
from barnabas.core.errors import KafkaError, name_of
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.handlers.end_txn import END_TXN
from barnabas.handlers.init_producer_id import INIT_PRODUCER_ID
from barnabas.handlers.list_transactions import LIST_TRANSACTIONS
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.purgatory.timer import Timer
from barnabas.records.builder import build_batch
from barnabas.requests.registry import Api
from barnabas.security.acl.authorizer import AllowAll
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.settings import broker_config
from tests.unit.coordinator.support import Answer, MemoryLog, serve

A = TopicPartition("a", 0)
B = TopicPartition("b", 3)

V1 = 0
V2 = 2


class Markers:
    """Partitions that take every marker, unless `errors` names them or `is_slow` holds answers back."""

    def __init__(self) -> None:
        self.written: list[tuple[TopicPartition, TransactionMarker]] = []
        self.errors: dict[TopicPartition, KafkaError] = {}
        self.is_slow = False
        self.waiting: list[Callable[[], None]] = []

    def write(
        self,
        marker: TransactionMarker,
        partitions: Collection[TopicPartition],
        done: Callable[[MarkerErrors], None],
    ) -> None:
        failed = {each: self.errors[each] for each in partitions if each in self.errors}
        self.written.extend((each, marker) for each in sorted(partitions) if each not in failed)
        if self.is_slow:
            self.waiting.append(lambda: done(failed))
        else:
            done(failed)

    def release(self) -> None:
        waiting, self.waiting = self.waiting, []
        for answer in waiting:
            answer()

    @property
    def outcomes(self) -> list[tuple[TopicPartition, str, int]]:
        """Partition, outcome and epoch of each marker."""
        return [
            (each, "commit" if marker.is_commit else "abort", marker.producer_epoch)
            for each, marker in self.written
        ]


class Transactions:
    """A coordinator of one partition; methods send requests and give error names or what was answered."""

    def __init__(self, log: MemoryLog | None = None, markers: Markers | None = None, **settings: Any) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.timer = Timer(self.clock)
        self.log = log or MemoryLog()
        self.markers = markers or Markers()
        self.settings = replace(TransactionSettings.of(broker_config()), **settings)
        self.producer_ids = itertools.count(1000)
        self.metrics = Metrics()
        self.account = transaction_memory_account(self.metrics)
        self.runtime = CoordinatorRuntime(
            TRANSACTION_TOPIC,
            cast("CoordinatorLog", self.log),
            self._make_shard,
            clock=self.clock,
            scheduler=self.scheduler,
            timer=self.timer,
            settings=RuntimeSettings(load_buffer_bytes=5 << 20),
            metrics=self.metrics,
        )
        self.coordinator = TransactionCoordinator(self.runtime, self.settings, lambda: 1)
        self.broker = SimpleNamespace(
            transactions=self.coordinator,
            authorizer=AllowAll(),
            clock=self.clock,
            producer_ids=SimpleNamespace(has_any=True),
        )
        self.elect()

    def _make_shard(self, timers: ShardTimers) -> TransactionShard:
        return TransactionShard(
            self.settings,
            timers,
            self.clock,
            cast("ClusterMarkers", self.markers),
            lambda: next(self.producer_ids),
            RateLimitedLogger(logging.getLogger("barnabas.coordinator.transaction"), self.clock),
            self.account,
        )

    def elect(self, leader_epoch: int = 0) -> None:
        self.log.leader_epoch = leader_epoch
        self.runtime.elected(0, leader_epoch)
        self.scheduler.run_due()

    @property
    def known(self) -> dict[str, TransactionMetadata]:
        ((_, shard),) = self.runtime.active_shards()
        return shard.transactions

    def state(self, transactional_id: str = "t") -> str:
        return self.known[transactional_id].state.shown_as

    def advance(self, ms: float) -> None:
        target = self.clock.monotonic_ms() + ms
        while (due := self.timer.next_expiry_ms()) is not None and due <= target:
            self.clock.advance(max(due - self.clock.monotonic_ms(), 0))
            self.timer.advance()
        self.clock.advance(target - self.clock.monotonic_ms())
        self.timer.advance()

    @classmethod
    def at_epoch(cls, epoch: int, timeout_ms: int = 60_000) -> Transactions:
        """A coordinator whose one producer, 1000, has used its epochs up to `epoch`."""
        metadata = TransactionMetadata("t", 1000, epoch, timeout_ms, EMPTY, last_update_timestamp_ms=0)
        found = cls.with_records(metadata)
        found.producer_ids = itertools.count(1001)
        return found

    @classmethod
    def with_records(cls, *known: TransactionMetadata) -> Transactions:
        """A coordinator that finds these in its log."""
        log = MemoryLog()
        for metadata in known:
            key, value = TransactionRecord(metadata.transactional_id, metadata, is_flexible=True).encode()
            log.append(TopicPartition(TRANSACTION_TOPIC, 0), 0, build_batch([(key, value, (), 0)]))
        return cls(log)

    # Requests

    def serve(self, api: Api, request: Any, version: int) -> Answer:
        return serve(self.broker, api, request, version)

    def ask_init(
        self,
        transactional_id: str = "t",
        *,
        timeout_ms: int = 60_000,
        expected: tuple[int, int] = (-1, -1),
    ) -> Answer:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        return self.serve(INIT_PRODUCER_ID, request, 5)

    def init(self, transactional_id: str = "t", **options: Any) -> ProducerIdAndEpoch:
        response = self.ask_init(transactional_id, **options).value
        assert response.error_code == 0, name_of(response.error_code)
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    def refused_init(self, transactional_id: str = "t", **options: Any) -> str:
        return name_of(self.ask_init(transactional_id, **options).error_code)

    def add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        transactional_id: str = "t",
        version: int = V1,
    ) -> str:
        return str(
            self.ask_add(producer, *partitions, transactional_id=transactional_id, version=version).value
        )

    def ask_add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        transactional_id: str = "t",
        version: int = V1,
    ) -> Answer:
        answer = Answer()
        self.coordinator.add_partitions(
            transactional_id,
            ProducerIdAndEpoch(*producer),
            partitions or (A,),
            lambda error: answer("NONE" if error is None else name_of(error.code)),
            client_transaction_version=version,
        )
        return answer

    def verify(self, producer: tuple[int, int], *partitions: TopicPartition) -> str | set[TopicPartition]:
        answer = Answer()
        self.coordinator.verify(
            "t",
            ProducerIdAndEpoch(*producer),
            partitions,
            lambda missing: answer(set(missing)),
            lambda error: answer(name_of(error.code)),
        )
        found: str | set[TopicPartition] = answer.value
        return found

    def ask_end(
        self,
        producer: tuple[int, int],
        *,
        commit: bool,
        transactional_id: str = "t",
        version: int = V1,
    ) -> Answer:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        return self.serve(END_TXN, request, 5 if version == V2 else 4)

    def commit(self, producer: tuple[int, int], **options: Any) -> str:
        return name_of(self.ask_end(producer, commit=True, **options).error_code)

    def abort(self, producer: tuple[int, int], **options: Any) -> str:
        return name_of(self.ask_end(producer, commit=False, **options).error_code)

    def listed(self, **filters: Any) -> list[str]:
        answer = self.serve(LIST_TRANSACTIONS, ListTransactionsRequest(**filters), 2)
        assert answer.error_code == 0, name_of(answer.error_code)
        return sorted(each.transactional_id for each in answer.value.transaction_states)
