"""One partition of `__transaction_state` in memory: its transactional ids.

The shard decides by `rules`, replays by replacing, and starts the completion of what is prepared. It is pure
but for its timers and the marker writer it was handed.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from barnabas.coordinator.decision import NO_ANSWERS, Answers, CoordinatorRecord, Decision, Waiter
from barnabas.coordinator.timers import ShardTimers
from barnabas.coordinator.transaction import rules
from barnabas.coordinator.transaction.cluster_markers import ClusterMarkers
from barnabas.coordinator.transaction.completion import Completions
from barnabas.coordinator.transaction.metadata import TransactionMetadata, completed, fenced, with_partitions
from barnabas.coordinator.transaction.records import TransactionRecord, UnknownRecord, decode_record
from barnabas.coordinator.transaction.rules import ProducerIdAndEpoch, TakeProducerId
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.states import ONGOING, PREPARED
from barnabas.core.clock import Clock
from barnabas.core.complaints import Complaints
from barnabas.core.errors import ConcurrentTransactions, InvalidTransactionTimeout, TransactionalIdNotFound
from barnabas.core.ids import TopicPartition
from barnabas.core.log_text import cut
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.records.batch import NO_PRODUCER_EPOCH, RecordBatch
from barnabas.records.record import iterate_records

logger = logging.getLogger(__name__)

TIMEOUTS_PER_TURN = 50
EXPIRED_PER_TURN = 2_000
"""What one turn of a sweep ends or forgets; the rest waits for a turn soon after."""
NEXT_TURN_MS = 10.0
PREPARE_ROOM_BYTES = 64
"""By so much at most the Prepare record of a transaction is larger than the last one before it. A transaction
that could not be prepared could not be ended, so it must not grow that far."""
RECORDS_PER_STEP = 200


class TransactionShard:
    def __init__(
        self,
        settings: TransactionSettings,
        timers: ShardTimers,
        clock: Clock,
        markers: ClusterMarkers,
        take_producer_id: TakeProducerId,
        complaints: Complaints,
    ) -> None:
        self.transactions: dict[str, TransactionMetadata] = {}
        self._settings = settings
        self._timers = timers
        self._clock = clock
        self._take_producer_id = take_producer_id
        self._complaints = complaints
        """Of all shards of the broker."""
        self._is_flexible = settings.transaction_version >= 1
        self._timed_out: deque[str] = deque()
        """Those that the present pass over the transactions has still to end."""
        self._completions = Completions(markers, timers, self.transactions.get, self._complete, complaints)

    # Requests

    def init_producer_id(self, request: InitProducerIdRequest) -> Decision[InitProducerIdResponse]:
        timeout_ms = request.transaction_timeout_ms
        if not 0 < timeout_ms <= self._settings.max_timeout_ms:
            raise InvalidTransactionTimeout(
                f"a transaction may take up to {self._settings.max_timeout_ms} ms, not {timeout_ms}"
            )
        transactional_id = request.transactional_id
        assert transactional_id is not None
        after = rules.initialize(
            self.transactions.get(transactional_id),
            transactional_id,
            timeout_ms,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            self._take_producer_id,
            self._clock.now_ms(),
        )
        if after.state in PREPARED:
            self._complaints.info(
                "replaced",
                "%s: a new producer ends the transaction of the one before it",
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
            [self._record(after)],
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
        return Decision(True, [self._record(after)], room_bytes=PREPARE_ROOM_BYTES)

    def await_completion(self, transactional_id: str, waiter: Waiter[None]) -> Decision[None]:
        self._completions.wait(transactional_id, waiter)
        return Decision()

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: frozenset[TopicPartition]
    ) -> Decision[frozenset[TopicPartition]]:
        """The partitions that are not part of the producer's transaction."""
        metadata = rules.check_owner(self.transactions.get(transactional_id), producer)
        return Decision(partitions - metadata.partitions)

    def end(self, request: EndTxnRequest, client_transaction_version: int) -> Decision[EndTxnResponse]:
        transactional_id = request.transactional_id
        former = self.transactions.get(transactional_id)
        after = rules.end(
            former,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            client_transaction_version=client_transaction_version,
            take_producer_id=self._take_producer_id,
            now_ms=self._clock.now_ms(),
        )
        if after is None:
            assert former is not None
            return Decision(
                EndTxnResponse(producer_id=former.producer_id, producer_epoch=former.producer_epoch)
            )
        if after.next_producer_id >= 0:
            response = EndTxnResponse(producer_id=after.next_producer_id, producer_epoch=0)
        else:
            response = EndTxnResponse(producer_id=after.producer_id, producer_epoch=after.producer_epoch)
        return self._prepare(after, response)

    def describe(self, transactional_id: str) -> Decision[TransactionMetadata]:
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            raise TransactionalIdNotFound(f"nobody has initialized {transactional_id}")
        return Decision(metadata)

    def find(self, wanted: Callable[[TransactionMetadata], bool]) -> Decision[list[TransactionMetadata]]:
        return Decision([metadata for metadata in self.transactions.values() if wanted(metadata)])

    def _prepare(self, after: TransactionMetadata, response: Any) -> Decision[Any]:
        waiting = self._completions.when_prepared(after.transactional_id)
        return Decision(response, [self._record(after)], later_answers=[waiting])

    def _complete(self, transactional_id: str) -> Decision[None]:
        metadata = self.transactions.get(transactional_id)
        if metadata is None or metadata.state not in PREPARED:
            return Decision()
        return Decision(records=[self._record(completed(metadata, self._clock.now_ms()))])

    def _record(self, metadata: TransactionMetadata) -> TransactionRecord:
        return TransactionRecord(metadata.transactional_id, metadata, is_flexible=self._is_flexible)

    # Sweeps

    def abort_timed_out(self) -> Decision[None]:
        """Take from their producers the transactions that stay open for too long.

        Each is a decision of its own: one that cannot be written keeps no other from its end."""
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
        self._complaints.info(
            "late", "%s: its transaction took too long and is aborted", cut(transactional_id)
        )
        return self._prepare(fenced(metadata, now_ms), None)

    def remove_expired(self) -> Decision[None]:
        """Forget transactional ids that nobody has used for long."""
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
        """From time to time, and for the first time after `delay_ms`."""
        interval_ms = self._settings.abort_timed_out_interval_ms
        self._timers.every("abort_timed_out", interval_ms, self.abort_timed_out, delay_ms=delay_ms)

    def _sweep_expired(self, delay_ms: float | None = None) -> None:
        """From time to time, and for the first time after `delay_ms`."""
        interval_ms = self._settings.remove_expired_interval_ms
        self._timers.every("remove_expired", interval_ms, self.remove_expired, delay_ms=delay_ms)

    # Replaying

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:  # noqa: ARG002
        assert isinstance(record, TransactionRecord)
        self._replay(record)

    def _replay(self, record: TransactionRecord) -> None:
        if record.metadata is None:
            self.transactions.pop(record.transactional_id, None)
        else:
            self.transactions[record.transactional_id] = record.metadata

    def load_batch(self, batch: RecordBatch) -> Iterator[None]:
        left = RECORDS_PER_STEP
        for record in iterate_records(batch):
            if record.key is None:
                continue
            try:
                self._replay(decode_record(record.key, record.value))
            except UnknownRecord as error:
                logger.warning("left alone in the transaction topic: %s", error)
            left -= 1
            if not left:
                left = RECORDS_PER_STEP
                yield

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """Nobody writes to the transaction topic in a transaction."""

    def loaded(self) -> None:
        """Finish what the former coordinator has prepared, and begin to sweep."""
        for metadata in self.transactions.values():
            if metadata.state in PREPARED:
                self._completions.start_later(metadata.transactional_id, 0)
        self._sweep_timed_out()
        self._sweep_expired()

    def unloaded(self) -> Answers:
        return self._completions.close()
