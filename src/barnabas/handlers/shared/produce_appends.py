"""Appends of one Produce request: each partition has its own response, its own error included.

A thread writes large records, and records queued behind them (`_AppendElsewhere`). The response waits for
that thread; other connections do not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from barnabas.coordinator.transaction.verification.transaction_verification import VerifiedWrites
from barnabas.core.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    RecordListTooLarge,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from barnabas.core.ids import INTERNAL_TOPICS, NO_EPOCH
from barnabas.core.limits import UNWRITTEN_BYTES_MAX
from barnabas.handlers.shared.up_conversion import (
    VERSION_WITH_BATCHES,
    VERSION_WITH_ZSTD,
    batch_of,
    from_old_producer,
)
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from barnabas.records.validation import ValidatedRecords, is_one_batch
from barnabas.replication.leader.delayed_produce import PendingAck
from barnabas.replication.partition.partition import Partition
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error, partition_code_and_message
from barnabas.security.acl.vocabulary import Operation, ResourceType
from barnabas.storage.log.parts.append import AppendInfo, Records
from barnabas.storage.log.threaded_append import when_written

ADMIN_CLIENT_ID: Final = "__admin_client"
"""The one client id that may write internal topics, as in Apache Kafka."""

_WRITE: Final = Operation.WRITE  # enum member lookup is slow
_TOPIC: Final = ResourceType.TOPIC

_BEFORE_THE_LOG = (
    InvalidRequiredAcks,
    InvalidTopicException,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
    NotLeaderOrFollower,
    TransactionalIdAuthorizationFailed,
    UnsupportedCompressionType,
    CorruptMessage,
    MessageTooLarge,
    KafkaStorageError,
)
"""Errors whose response carries no log start offset, as in Apache Kafka."""


class PartitionAppends:
    """The appends and their outcomes, before producers and readers are notified."""

    __slots__ = (
        "context", "delays_others", "failed", "on_written", "pending", "refusal", "request",
        "response", "touched", "unacknowledged", "unwritten", "verified",
    )  # fmt: skip

    def __init__(
        self,
        request: ProduceRequest,
        context: RequestContext,
        verified: VerifiedWrites | None,
        refusal: KafkaError | None,
    ) -> None:
        self.request = request
        self.context = context
        self.verified = verified
        self.refusal = refusal
        """Error of the whole request, which every partition gets."""
        self.response = ProduceResponse(responses=[])
        self.touched: list[Partition] = []
        """Written partitions whose waiting readers are not yet notified."""
        self.pending: list[PendingAck] = []
        """Written partitions that are not yet acknowledged."""
        self.unacknowledged: list[PartitionProduceResponse] = []
        """Responses of the `pending` partitions, in the same order."""
        self.failed = False
        self.delays_others = False
        """Whether this request writes large records on the loop."""
        self.unwritten = 0
        """Appends that a thread is writing."""
        self.on_written: Callable[[], None] | None = None
        """Called when `unwritten` becomes 0. Set once all appends have begun."""

    def append(
        self, data: PartitionProduceData, topic: str | None, answers: list[PartitionProduceResponse]
    ) -> None:
        """Append to one partition, and add its response to those of its topic."""
        context, required_acks = self.context, self.request.acks
        try:
            if self.refusal is not None:
                raise self.refusal
            topic = _authorized(topic, context)
            is_internal = topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID
            if is_internal or not -1 <= required_acks <= 1:
                raise _misused(data, topic, required_acks, context)
            partition = context.broker.replicas.table.partition(topic, data.index)
            records = data.records
            if records is None:
                raise InvalidRecord("a produce request needs a record batch for each partition")
            assert isinstance(records, memoryview)
            log = partition.log
            is_for_thread = (
                len(records) >= log.environment.written_elsewhere_bytes_min and self._would_delay_others()
            )
            is_batch = context.api_version >= VERSION_WITH_BATCHES
            validate = log.validation(records if is_batch else batch_of(data, context))
            if is_for_thread or validate is not None or log.is_being_written:
                _AppendElsewhere(self, data, topic, partition, answers, is_for_thread).wait(
                    must_be_validated=validate is not None
                )
                return
            info = partition.append(self.checked(data, records, partition), required_acks)
        except Exception as error:  # noqa: BLE001 - each partition has its own answer
            answers.append(self.refused(data, error, topic))
            return
        answer = _accepted(data, info)
        answers.append(answer)
        self.touched.append(partition)
        end_offset = info.last_offset + 1
        if required_acks and not partition.is_acknowledged(end_offset, required_acks):
            self.pending.append(PendingAck(partition, end_offset))
            self.unacknowledged.append(answer)

    def _would_delay_others(self) -> bool:
        """Whether a large write would delay other connections. Decided once per request, not per write."""
        if not self.delays_others:
            self.delays_others = self.context.exchange.connection.others_served_since_last_call()
        return self.delays_others

    def checked(self, data: PartitionProduceData, records: memoryview, partition: Partition) -> memoryview:
        """Records to append: verified by the transaction coordinator, and as one batch."""
        if self.verified is not None:
            self.verified.check(partition.topic_partition, records)
        if self.context.api_version < VERSION_WITH_ZSTD:
            return from_old_producer(data, records, self.context, partition)
        return records

    def refused(
        self, data: PartitionProduceData, error: Exception, topic: str | None
    ) -> PartitionProduceResponse:
        self.failed = True
        replicas = self.context.broker.replicas
        error = as_kafka_error(error, f"appending to {topic}-{data.index}")
        code, message = partition_code_and_message(error)
        answer = PartitionProduceResponse(
            index=data.index,
            error_code=code,
            base_offset=-1,
            error_message=message,
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in error.record_errors
            ],
        )
        if topic is not None:
            is_too_large = isinstance(error, MessageTooLarge | RecordListTooLarge)
            replicas.table.count_failed_produce(
                topic, len(data.records) if is_too_large and data.records is not None else 0
            )
            if not isinstance(error, _BEFORE_THE_LOG) and is_one_batch(data.records):
                with suppress(KafkaError):  # the log may be the part that failed
                    answer.log_start_offset = replicas.partition(topic, data.index).log.log_start_offset
        return answer

    def wake_readers(self) -> None:
        """Notify fetches that wait for these records, before the rest of the request is written."""
        wake_soon = self.context.broker.replicas.delayed.wake_soon
        for partition in self.touched:
            wake_soon(partition.topic_partition)
        self.touched.clear()

    def one_is_written(self) -> None:
        self.unwritten -= 1
        if not self.unwritten:
            self.context.exchange.give_back()
        if self.on_written is None:
            return
        if self.unwritten:
            self.wake_readers()
        else:
            self.on_written()


class _AppendElsewhere:
    """Append that waits for the writes before it, and whose own write may run in a thread.

    The connection is read meanwhile, unless too many bytes are unwritten.
    """

    __slots__ = (
        "_answers", "_appends", "_data", "_is_for_thread", "_leader_epoch", "_log", "_partition",
        "_size_bytes", "_slot", "_topic", "_validated",
    )  # fmt: skip

    def __init__(
        self,
        appends: PartitionAppends,
        data: PartitionProduceData,
        topic: str,
        partition: Partition,
        answers: list[PartitionProduceResponse],
        is_for_thread: bool,
    ) -> None:
        assert isinstance(data.records, memoryview)
        self._appends = appends
        self._data = data
        self._topic = topic
        self._partition = partition
        self._answers = answers
        self._is_for_thread = is_for_thread
        self._log = partition.log
        self._leader_epoch = NO_EPOCH
        self._size_bytes = len(data.records)
        self._slot = len(answers)
        self._validated: ValidatedRecords | None = None

    def wait(self, *, must_be_validated: bool = False) -> None:
        """Join the queue of appends, which may be empty.

        A thread first validates records whose validation takes long. The connection is paused until they are
        answered, so that its next records stay behind them.
        """
        context, data, log_directory = self._appends.context, self._data, self._log.log_directory
        if not context.keeps_records:
            assert isinstance(data.records, memoryview)
            data.records = context.exchange.lend_piece(data.records)
        # Nothing below fails: each counter is taken back when the append ends.
        self._answers.append(PartitionProduceResponse(index=data.index))
        self._appends.unwritten += 1
        log_directory.unwritten_bytes += self._size_bytes
        if log_directory.unwritten_bytes > UNWRITTEN_BYTES_MAX:
            context.exchange.hold()
        if must_be_validated:
            context.exchange.hold()
            self._validate()
        else:
            when_written(self._log, self._begin)

    def _validate(self) -> None:
        work = self._log.validation(batch_of(self._data, self._appends.context))
        if work is None:  # the settings of the topic have changed meanwhile
            when_written(self._log, self._begin)
            return
        validate = work
        context = self._appends.context
        now_ms = context.broker.clock.monotonic_ms
        took_ms: list[float] = []

        def timed() -> ValidatedRecords:
            begun_ms = now_ms()
            try:
                return validate()
            finally:
                took_ms.append(now_ms() - begun_ms)

        def validated(found: ValidatedRecords) -> None:
            context.spent_ms += sum(took_ms)  # charged to the client's request quota like time on the loop
            self._validated = found
            when_written(self._log, self._begin)

        def failed(error: BaseException) -> None:
            context.spent_ms += sum(took_ms)
            self._refuse(error if isinstance(error, Exception) else RuntimeError(str(error)))

        try:
            self._log.environment.writers(self._log.log_directory).submit(timed, validated, failed)
        except RuntimeError as error:  # the broker is shutting down
            self._refuse(error)

    def _begin(self) -> None:
        """Begin the append when its turn comes.

        The partition is looked up again, because it may have moved meanwhile. A different log belongs to
        another directory or another topic, and has a queue of its own.
        """
        data, appends = self._data, self._appends
        records = data.records
        assert isinstance(records, memoryview)
        try:
            self._partition = partition = appends.context.broker.replicas.partition(self._topic, data.index)
            if partition.log is not self._log:
                raise NotLeaderOrFollower(f"the log of {partition.topic_partition} has been replaced; retry")
            to_append: Records = appends.checked(data, records, partition)
            if self._validated is not None:
                to_append = self._validated
            self._leader_epoch = partition.leadership.leader_epoch
            if self._is_for_thread:
                partition.append_elsewhere(to_append, appends.request.acks, self._written)
                return
            info = partition.append(to_append, appends.request.acks)
        except Exception as error:  # noqa: BLE001 - each partition has its own answer
            self._refuse(error)
        else:
            self._written(info)

    def _written(self, result: AppendInfo | KafkaError) -> None:
        if isinstance(result, KafkaError):
            self._refuse(result)
            return
        appends, partition = self._appends, self._partition
        answer = _accepted(self._data, result)
        appends.touched.append(partition)
        if appends.request.acks:  # leadership may have moved since, for any value of acks
            appends.pending.append(PendingAck(partition, result.last_offset + 1, self._leader_epoch))
            appends.unacknowledged.append(answer)
        self._end(answer)

    def _refuse(self, error: Exception) -> None:
        self._end(self._appends.refused(self._data, error, self._topic))

    def _end(self, answer: PartitionProduceResponse) -> None:
        self._answers[self._slot] = answer
        self._log.log_directory.unwritten_bytes -= self._size_bytes
        self._appends.one_is_written()


def _accepted(data: PartitionProduceData, info: AppendInfo) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=data.index,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )


def _misused(
    data: PartitionProduceData, topic: str, required_acks: int, context: RequestContext
) -> KafkaError:
    """Error of a request that no log accepts. A missing partition or a malformed batch has its own, first, as
    in Apache Kafka."""
    if context.broker.metadata.partition(topic, data.index) is None:
        return UnknownTopicOrPartition(f"{topic}-{data.index} does not exist")
    if context.api_version >= VERSION_WITH_BATCHES and not is_one_batch(data.records):
        return InvalidRecord("a produce request needs one record batch for each partition")
    if not -1 <= required_acks <= 1:
        return InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {required_acks}")
    return InvalidTopicException(f"clients cannot write the internal topic {topic}")


def _authorized(topic: str | None, context: RequestContext) -> str:
    if topic is None:
        raise UnknownTopicId("this server does not host this topic id")
    if not context.allows(_WRITE, _TOPIC, topic):
        raise TopicAuthorizationFailed("not authorized")
    return topic
