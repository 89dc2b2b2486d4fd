"""Shard of the transaction coordinator: the transactional ids of one `__transaction_state` partition.

The shard decides by `rules`, replays by replacing, and starts the completion of prepared transactions. It is
pure but for its timers and the marker writer that it gets.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any

from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.coordinator.runtime.decision import NO_ANSWERS, Answers, CoordinatorRecord, Decision, Waiter
from barnabas.coordinator.runtime.replay import LoadStep, SetAside
from barnabas.coordinator.runtime.timers import ShardTimers
from barnabas.coordinator.transaction.markers.cluster import ClusterMarkers
from barnabas.coordinator.transaction.markers.completion import Completions
from barnabas.coordinator.transaction.state import rules
from barnabas.coordinator.transaction.state.metadata import (
    TransactionMetadata,
    completed,
    fenced,
    with_partitions,
)
from barnabas.coordinator.transaction.state.records import TransactionRecord, decode_record
from barnabas.coordinator.transaction.state.rules import TakeProducerId
from barnabas.coordinator.transaction.state.settings import TransactionSettings
from barnabas.coordinator.transaction.state.states import ONGOING, PREPARED
from barnabas.coordinator.transaction.state.transaction_memory import TransactionMemory
from barnabas.core.bounds.kept_memory import MemoryAccount, MemoryOwner, Reservation
from barnabas.core.clock import Clock
from barnabas.core.errors import ConcurrentTransactions, InvalidTransactionTimeout, TransactionalIdNotFound
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.log_text import cut
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.records.batch import NO_PRODUCER_EPOCH, RecordBatch
from barnabas.records.record import iterate_records

TIMEOUTS_PER_TURN = 50
EXPIRED_PER_TURN = 2_000
"""Transactional ids that one turn of a sweep ends or removes; the rest waits for a later turn."""
NEXT_TURN_MS = 10.0
PREPARE_ROOM_BYTES = 64
"""Bytes by which a Prepare record may be larger than the record before it. A transaction that cannot be
prepared could not be ended, so it must not grow that far."""
RECORDS_PER_STEP = 200


class TransactionShard:
    def __init__(
        self,
        settings: TransactionSettings,
        timers: ShardTimers,
        clock: Clock,
        markers: ClusterMarkers,
        take_producer_id: TakeProducerId,
        limited_log: RateLimitedLogger,
        account: MemoryAccount,
    ) -> None:
        self._memory = TransactionMemory(account, limited_log)
        self.transactions: dict[str, TransactionMetadata] = {}
        self._settings = settings
        self._timers = timers
        self._clock = clock
        self._take_producer_id = take_producer_id
        self._limited_log = limited_log
        """Rate-limited log of all shards of the broker."""
        self._is_flexible = settings.transaction_version >= 1
        self._timed_out: deque[str] = deque()
        """Transactions that the current sweep has still to abort."""
        self._completions = Completions(markers, timers, self.transactions.get, self._complete, limited_log)

    # --- requests ---

    def init_producer_id(
        self, request: InitProducerIdRequest, owner: MemoryOwner
    ) -> Decision[InitProducerIdResponse]:
        timeout_ms = request.transaction_timeout_ms
        if not 0 < timeout_ms <= self._settings.max_timeout_ms:
            raise InvalidTransactionTimeout(
                f"transaction.timeout.ms {timeout_ms} exceeds the maximum of {self._settings.max_timeout_ms}"
            )
        transactional_id = request.transactional_id
        assert transactional_id is not None
        memory = self._memory.reserve(transactional_id, owner)
        after = rules.initialize(
            self.transactions.get(transactional_id),
            transactional_id,
            timeout_ms,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            self._take_producer_id,
            self._clock.now_ms(),
        )
        if after.state in PREPARED:
            self._limited_log.info(
                "replaced",
                "transactional id %s: a new producer aborts the open transaction of the previous one",
                cut(transactional_id),
            )
            return self._prepare(
                after,
                InitProducerIdResponse(
                    error_code=ConcurrentTransactions.code, producer_epoch=NO_PRODUCER_EPOCH
                ),
            )
        return Decision(
            InitProducerIdResponse(producer_id=after.producer_id, producer_epoch=after.producer_epoch),
            [self._record(after, memory)],
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        client_transaction_version: int,
    ) -> Decision[bool]:
        metadata = rules.check_owner(self.transactions.get(transactional_id), producer)
        if metadata.state is ONGOING and partitions <= metadata.partitions:
            return Decision(True)
        after = with_partitions(metadata, partitions, self._clock.now_ms(), client_transaction_version)
        self._memory.check_partitions(transactional_id, len(after.partitions))
        return Decision(True, [self._record(after)], room_bytes=PREPARE_ROOM_BYTES)

    def await_completion(self, transactional_id: str, waiter: Waiter[None]) -> Decision[None]:
        self._completions.wait(transactional_id, waiter)
        return Decision()

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: frozenset[TopicPartition]
    ) -> Decision[frozenset[TopicPartition]]:
        """Partitions that are not part of the producer's transaction."""
        metadata = rules.check_owner(self.transactions.get(transactional_id), producer)
        return Decision(partitions - metadata.partitions)

    def end(self, request: EndTxnRequest, client_transaction_version: int) -> Decision[EndTxnResponse]:
        transactional_id = request.transactional_id
        previous = self.transactions.get(transactional_id)
        after = rules.end(
            previous,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            client_transaction_version=client_transaction_version,
            take_producer_id=self._take_producer_id,
            now_ms=self._clock.now_ms(),
        )
        if after is None:
            assert previous is not None
            return Decision(
                EndTxnResponse(producer_id=previous.producer_id, producer_epoch=previous.producer_epoch)
            )
        if after.next_producer_id >= 0:
            response = EndTxnResponse(producer_id=after.next_producer_id, producer_epoch=0)
        else:
            response = EndTxnResponse(producer_id=after.producer_id, producer_epoch=after.producer_epoch)
        return self._prepare(after, response)

    def describe(self, transactional_id: str) -> Decision[TransactionMetadata]:
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            raise TransactionalIdNotFound(f"no producer has initialized {transactional_id}")
        return Decision(metadata)

    def all_transactions(self) -> Decision[list[TransactionMetadata]]:
        """For ListTransactions, which filters one by one: there may be many, and most may be hidden."""
        return Decision(list(self.transactions.values()))

    def _prepare(self, after: TransactionMetadata, response: Any) -> Decision[Any]:
        waiting = self._completions.when_prepared(after.transactional_id)
        return Decision(response, [self._record(after)], later_answers=[waiting])

    def _complete(self, transactional_id: str) -> Decision[None]:
        metadata = self.transactions.get(transactional_id)
        if metadata is None or metadata.state not in PREPARED:
            return Decision()
        return Decision(records=[self._record(completed(metadata, self._clock.now_ms()))])

    def _record(self, metadata: TransactionMetadata, memory: Reservation | None = None) -> TransactionRecord:
        return TransactionRecord(
            metadata.transactional_id, metadata, is_flexible=self._is_flexible, memory=memory
        )

    # --- sweeps ---

    def abort_timed_out(self) -> Decision[None]:
        """Abort transactions that stay open beyond their timeout, and fence their producers.

        Each is a decision of its own: a failed write does not keep the others from their abort.
        """
        now_ms = self._clock.now_ms()
        if not self._timed_out:
            self._timed_out.extend(
                each.transactional_id for each in self.transactions.values() if each.is_timed_out(now_ms)
            )
        for _ in range(min(TIMEOUTS_PER_TURN, len(self._timed_out))):
            self._timers.run(partial(self._time_out, self._timed_out.popleft()))
        if self._timed_out:
            self._sweep_timed_out(NEXT_TURN_MS)
        return Decision()

    def _time_out(self, transactional_id: str) -> Decision[Any]:
        metadata, now_ms = self.transactions.get(transactional_id), self._clock.now_ms()
        if metadata is None or not metadata.is_timed_out(now_ms):
            return Decision()
        self._limited_log.info(
            "late",
            "transactional id %s: its transaction exceeded transaction.timeout.ms and is aborted",
            cut(transactional_id),
        )
        return self._prepare(fenced(metadata, now_ms), None)

    def remove_expired(self) -> Decision[None]:
        """Remove transactional ids after `transactional.id.expiration.ms` without use."""
        now_ms, expiration_ms = self._clock.now_ms(), self._settings.id_expiration_ms
        expired = (
            TransactionRecord(each.transactional_id, None)
            for each in self.transactions.values()
            if each.is_expired(now_ms, expiration_ms)
        )
        turn = list(itertools.islice(expired, EXPIRED_PER_TURN))
        later_answers: Answers = NO_ANSWERS
        if len(turn) == EXPIRED_PER_TURN:
            next_turn: Waiter[None] = Waiter(lambda _: self._sweep_expired(NEXT_TURN_MS), lambda _: None)
            later_answers = [(next_turn, None)]
        return Decision(records=turn, later_answers=later_answers, is_atomic=False)

    def _sweep_timed_out(self, delay_ms: float | None = None) -> None:
        """Sweep periodically, for the first time after `delay_ms`."""
        interval_ms = self._settings.abort_timed_out_interval_ms
        self._timers.every("abort_timed_out", interval_ms, self.abort_timed_out, delay_ms=delay_ms)

    def _sweep_expired(self, delay_ms: float | None = None) -> None:
        """Sweep periodically, for the first time after `delay_ms`."""
        interval_ms = self._settings.remove_expired_interval_ms
        self._timers.every("remove_expired", interval_ms, self.remove_expired, delay_ms=delay_ms)

    # --- replay ---

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:  # noqa: ARG002
        assert isinstance(record, TransactionRecord)
        self._replay(record)

    def _replay(self, record: TransactionRecord) -> None:
        self._memory.replayed(record.transactional_id, record.metadata, record.memory)
        if record.metadata is None:
            self.transactions.pop(record.transactional_id, None)
        else:
            self.transactions[record.transactional_id] = record.metadata

    def load_batch(self, batch: RecordBatch) -> Iterator[LoadStep]:
        left = RECORDS_PER_STEP
        for record in iterate_records(batch):
            if record.key is None:
                continue
            try:
                self._replay(decode_record(record.key, record.value))
            except Exception as error:  # noqa: BLE001 - the loader counts and logs it
                yield SetAside(record.offset, error)
            left -= 1
            if not left:
                left = RECORDS_PER_STEP
                yield None

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """The transaction topic has no transactional records."""

    def loaded(self) -> None:
        """Complete transactions that the previous coordinator prepared, and start the sweeps."""
        for metadata in self.transactions.values():
            if metadata.state in PREPARED:
                self._completions.start_later(metadata.transactional_id, 0)
        self._sweep_timed_out()
        self._sweep_expired()

    def unloaded(self) -> Answers:
        self.transactions.clear()
        self._memory.clear()
        return self._completions.close()
