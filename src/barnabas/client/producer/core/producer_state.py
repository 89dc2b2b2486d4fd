"""Producer id, epoch and sequence numbers of an idempotent producer, and the rules for gaps in them.

The rules are those of Apache Kafka's TransactionManager (KIP-360):

- A batch that may have been appended keeps its number through all retries.
- Batches that a previous leader has not answered come before new ones. A broker recognises the last five
  batches alone. Behind more, it would refuse the retry of one that it has, again and again.
- OUT_OF_ORDER_SEQUENCE_NUMBER behind an outstanding batch is retried. Without one there is a gap.
- A gap of an idempotent producer is closed by a new epoch: the partition begins again with number 0 under the
  epoch that follows. No request is needed for it. The epochs of an id are used up after 32,767 of them; the
  producer then asks for another id.
- The first batch of an epoch goes alone. A broker without a state of the producer accepts any number, so a
  batch behind a refused one would be appended in its place.
- A batch that expired after it was sent leaves its number unresolved. New batches wait until the batches
  behind it have an outcome, which shows whether the broker had appended it. So does a refused batch, while
  batches before it have no outcome: those keep their numbers.
- A request of a lost connection may still be handled, and fill the gap of an expired batch. A batch behind
  the gap that had such a request fails: under the new epoch it might be written twice.
- A transactional producer never does this on its own: a gap ends its transaction (`transaction_state`).
"""

from __future__ import annotations

from typing import Final

from barnabas.client.producer.core.batch import ProducerBatch
from barnabas.client.producer.core.sequences import NONE_ACKED, PartitionSequences
from barnabas.client.producer.core.transaction_state import TransactionState
from barnabas.core.errors import KafkaError, OutOfOrderSequenceNumber, UnknownProducerId
from barnabas.core.ids import TopicPartition
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

EPOCH_MAX: Final = 0x7FFF
NO_LOG_START: Final = -1

LOST_ACKNOWLEDGEMENT: Final = (
    "some records were sent and never acknowledged, and cannot be sent again; abort the transaction"
)


class ProducerState:
    def __init__(self, *, is_idempotent: bool, transaction: TransactionState | None = None) -> None:
        self.is_idempotent = is_idempotent
        self.transaction = transaction
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_PRODUCER_EPOCH
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._unresolved: dict[TopicPartition, None] = {}
        """Partitions with a gap that waits for the outcome of other batches."""
        self._may_be_filled: set[TopicPartition] = set()
        """Partitions with a gap that a late request may still fill."""
        self._needs_new_epoch: dict[TopicPartition, None] = {}
        self._doubtful: list[ProducerBatch] = []

    @property
    def needs_id(self) -> bool:
        """True when the producer must ask for an id before it can send."""
        return self.is_idempotent and self.producer_id == NO_PRODUCER_ID

    def set_id(self, producer_id: int, epoch: int) -> None:
        """Take an id from a broker. A transactional producer numbers all partitions from 0 again."""
        self.producer_id, self.epoch = producer_id, epoch
        if self.transaction is not None:
            self._partitions.clear()
            self._unresolved.clear()
            self._may_be_filled.clear()
            self._needs_new_epoch.clear()
        self._begin_again()

    def forget_id(self) -> None:
        self.producer_id, self.epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH

    def sequences(self, at: TopicPartition) -> PartitionSequences:
        found = self._partitions.get(at)
        if found is None:
            found = self._partitions[at] = PartitionSequences()
            found.producer_id, found.producer_epoch = self.producer_id, self.epoch
        return found

    # --- sending ---

    def may_send(self, batch: ProducerBatch, broker_id: int) -> bool:
        """True when the first batch of a partition may be sent to its leader now."""
        if self.transaction is not None and not self.transaction.may_send_to(batch.topic_partition):
            return False
        if not self.is_idempotent:
            return True
        if self.producer_id == NO_PRODUCER_ID:
            return False
        sequences = self.sequences(batch.topic_partition)
        if batch.has_sequence:
            # A retry: only the batch that the broker must get next, so one at a time.
            return sequences.first_outstanding in (NO_SEQUENCE, batch.base_sequence)
        if sequences.outstanding and (self._is_stale(sequences) or sequences.last_acked == NONE_ACKED):
            return False  # batches of the old epoch come first, and the first of an epoch goes alone
        return batch.topic_partition not in self._unresolved and not sequences.is_in_flight_elsewhere(
            broker_id
        )

    def number(self, batch: ProducerBatch) -> None:
        """Give a batch that is sent for the first time its number."""
        if not self.is_idempotent or batch.has_sequence:
            return
        sequences = self.sequences(batch.topic_partition)
        if self._is_stale(sequences) and not sequences.outstanding:
            sequences.begin_again(self.producer_id, self.epoch)
        sequences.number(batch)

    def _is_stale(self, sequences: PartitionSequences) -> bool:
        return (sequences.producer_id, sequences.producer_epoch) != (self.producer_id, self.epoch)

    # --- outcomes ---

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        if batch.has_sequence:
            self.sequences(batch.topic_partition).acknowledge(batch, base_offset)

    def can_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int) -> bool:
        """True when a batch that the broker refused may be sent again."""
        if not batch.has_sequence:
            return error.retriable
        if isinstance(error, UnknownProducerId):
            return self._can_retry_unknown_producer(batch, log_start_offset)
        if isinstance(error, OutOfOrderSequenceNumber):
            return self._can_retry_out_of_order(batch)
        return error.retriable

    def _can_retry_unknown_producer(self, batch: ProducerBatch, log_start_offset: int) -> bool:
        sequences = self.sequences(batch.topic_partition)
        if log_start_offset == NO_LOG_START or batch.sequence_was_reset:
            return True
        if self.transaction is None:
            self.request_new_epoch(batch.topic_partition)
            return True
        if sequences.last_acked_offset < log_start_offset:
            # Retention has removed the producer's records, and its state with them.
            sequences.begin_again(self.producer_id, self.epoch)
            return True
        return False

    def _can_retry_out_of_order(self, batch: ProducerBatch) -> bool:
        at = batch.topic_partition
        sequences, is_unresolved = self.sequences(at), at in self._unresolved
        if batch.sequence_was_reset or not (is_unresolved or sequences.is_next_to_ack(batch.base_sequence)):
            return True
        if self.transaction is not None:
            return False
        if not is_unresolved or not sequences.has_before(batch):
            self.request_new_epoch(at)
        return True

    def failed(self, batch: ProducerBatch, error: Exception, *, was_refused: bool) -> None:
        """A batch has failed for good. One that no broker refused may have been appended."""
        if self.transaction is not None:
            self.transaction.batch_failed(error)
        if not batch.has_sequence:
            return
        at = batch.topic_partition
        sequences = self.sequences(at)
        if not sequences.remove(batch):
            return
        if self.transaction is not None and self.transaction.is_fatal:
            return
        if not was_refused or (self.transaction is None and sequences.has_before(batch)):
            self._unresolved[at] = None
            if not was_refused:  # a refusal is final for late requests too
                self._may_be_filled.add(at)
        elif isinstance(error, UnknownProducerId):
            sequences.begin_again(self.producer_id, self.epoch)
        elif self.transaction is None:
            self.request_new_epoch(at)
        else:
            sequences.close_gap(batch)

    def take_doubtful(self) -> list[ProducerBatch]:
        """Batches that may be appended late, and cannot be sent again under the new epoch."""
        taken, self._doubtful = self._doubtful, []
        return taken

    def split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        if batch.has_sequence:
            self.sequences(batch.topic_partition).replace_by_parts(batch, parts)

    # --- gaps ---

    def request_new_epoch(self, at: TopicPartition) -> None:
        """Close the gap of a partition by a new epoch, before the next request."""
        self._needs_new_epoch[at] = None

    def settle(self) -> None:
        """Resolve expired batches whose successors have an outcome, and take the new epoch where one is
        needed. Called before each round of requests.
        """
        for at in list(self._unresolved):
            sequences = self.sequences(at)
            if sequences.outstanding:
                continue
            del self._unresolved[at]
            self._may_be_filled.discard(at)
            if sequences.is_next_to_ack(sequences.next):
                continue  # an answer has shown that the broker has everything
            if self.transaction is None:
                self.request_new_epoch(at)
            else:
                self.transaction.lost_acknowledgement(LOST_ACKNOWLEDGEMENT)
        if self._needs_new_epoch:
            self._bump_epoch()

    def _bump_epoch(self) -> None:
        if self.producer_id == NO_PRODUCER_ID:
            return
        if self.epoch >= EPOCH_MAX:
            self.forget_id()
            return
        self.epoch += 1
        self._begin_again()

    def _begin_again(self) -> None:
        partitions, self._needs_new_epoch = self._needs_new_epoch, {}
        for at in partitions:
            sequences = self.sequences(at)
            if at in self._may_be_filled:
                self._may_be_filled.remove(at)
                self._doubtful += sequences.doubt()
            sequences.begin_again(self.producer_id, self.epoch)
            self._unresolved.pop(at, None)
