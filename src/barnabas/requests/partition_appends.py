"""The appends of one Produce request: each partition has its own answer, its own error included.

Large records, and those that come behind some, are written by a thread (`_AppendElsewhere`): the answer waits
for it, and nobody else does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from barnabas.coordinator.transaction.admission import Admission
from barnabas.core.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from barnabas.core.ids import INTERNAL_TOPICS, NO_EPOCH
from barnabas.core.limits import UNWRITTEN_BYTES_MAX
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from barnabas.records.validation import is_one_batch
from barnabas.replication.leader.delayed_produce import PendingAck
from barnabas.replication.partition import Partition
from barnabas.requests.context import RequestContext
from barnabas.requests.failures import as_kafka_error
from barnabas.requests.old_messages import VERSION_WITH_ZSTD, from_old_producer
from barnabas.security.acl.vocabulary import Operation, ResourceType
from barnabas.storage.log.append import AppendInfo
from barnabas.storage.log.append_elsewhere import when_written

ADMIN_CLIENT_ID: Final = "__admin_client"
"""The one client id that may write internal topics, as in Apache Kafka."""

_WRITE: Final = Operation.WRITE  # looking up a member of an enum is slow
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
"""Errors whose answer does not say where the log starts, as in Apache Kafka."""


class PartitionAppends:
    """Makes them, and knows what came of them, before anybody is told."""

    __slots__ = (
        "admission", "context", "delays_others", "failed", "on_written", "pending", "refusal", "request",
        "response", "touched", "unwritten",
    )  # fmt: skip

    def __init__(
        self,
        request: ProduceRequest,
        context: RequestContext,
        admission: Admission | None,
        refusal: KafkaError | None,
    ) -> None:
        self.request = request
        self.context = context
        self.admission = admission
        self.refusal = refusal
        """Of the whole request, which every partition is answered with."""
        self.response = ProduceResponse(responses=[])
        self.touched: list[Partition] = []
        """Written, and nobody who reads them has been told."""
        self.pending: list[PendingAck] = []
        """Written, and not yet acknowledged."""
        self.failed = False
        self.delays_others = False
        """If it writes large records on the loop."""
        self.unwritten = 0
        """Appends that a thread writes."""
        self.on_written: Callable[[], None] | None = None
        """Called when nothing is unwritten any more; there when all appends are begun."""

    def append(
        self, data: PartitionProduceData, topic: str | None, answers: list[PartitionProduceResponse]
    ) -> None:
        """Append to one partition, and put its answer behind the others of its topic."""
        context, required_acks = self.context, self.request.acks
        try:
            if self.refusal is not None:
                raise self.refusal
            topic = _authorized(topic, context)
            if not -1 <= required_acks <= 1:
                raise InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {required_acks}")
            if topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
                raise InvalidTopicException(f"clients cannot write the internal topic {topic}")
            records = data.records
            if records is None:
                raise InvalidRecord("a produce request has one record batch per partition, this one has none")
            assert isinstance(records, memoryview)
            partition = context.broker.replicas.partition(topic, data.index)
            log = partition.log
            is_for_thread = (
                len(records) >= log.environment.written_elsewhere_bytes_min and self._has_company()
            )
            if is_for_thread or log.is_being_written:
                _AppendElsewhere(self, data, topic, partition, answers, is_for_thread).wait()
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
            self.pending.append(PendingAck(partition, end_offset, answer))

    def _has_company(self) -> bool:
        """Whether a large write would delay anybody else: said of the request, not of each of its writes."""
        self.delays_others = self.delays_others or self.context.exchange.connection.has_company()
        return self.delays_others

    def checked(self, data: PartitionProduceData, records: memoryview, partition: Partition) -> memoryview:
        """What is appended, as the transaction's coordinator admitted it, and as a batch."""
        if self.admission is not None:
            self.admission.check(partition.topic_partition, records)
        if self.context.api_version < VERSION_WITH_ZSTD:
            return from_old_producer(data, records, self.context, partition)
        return records

    def refused(
        self, data: PartitionProduceData, error: Exception, topic: str | None
    ) -> PartitionProduceResponse:
        self.failed = True
        replicas = self.context.broker.replicas
        error = as_kafka_error(error, f"appending to {topic}-{data.index}")
        answer = PartitionProduceResponse(
            index=data.index,
            error_code=error.code,
            base_offset=-1,
            error_message=error.message,
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in error.record_errors
            ],
        )
        if topic is not None:
            replicas.table.count_failed_produce(topic)
            if not isinstance(error, _BEFORE_THE_LOG) and is_one_batch(data.records):
                with suppress(KafkaError):  # the log may be what failed
                    answer.log_start_offset = replicas.partition(topic, data.index).log.log_start_offset
        return answer

    def wake_readers(self) -> None:
        """Who waits for what is written need not wait for the rest of the request."""
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
    """An append that has its turn when what came before it is written, and whose write may be a thread's. The
    connection is read on meanwhile, unless too much is unwritten already."""

    __slots__ = (
        "_answers", "_appends", "_data", "_is_for_thread", "_leader_epoch", "_log", "_partition",
        "_size_bytes", "_slot", "_topic",
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

    def wait(self) -> None:
        """Get in line, which may be empty."""
        context, data, home = self._appends.context, self._data, self._log.log_directory
        if not context.keeps_records:
            assert isinstance(data.records, memoryview)
            data.records = context.exchange.lend_piece(data.records)
        # From here on nothing fails: what is counted is taken back when the append is over.
        self._answers.append(PartitionProduceResponse(index=data.index))
        self._appends.unwritten += 1
        home.unwritten_bytes += self._size_bytes
        if home.unwritten_bytes > UNWRITTEN_BYTES_MAX:
            context.exchange.hold()
        when_written(self._log, self._begin)

    def _begin(self) -> None:
        """Much may have changed in the line: the partition is looked for anew. A log that has taken the place
        of the one that was waited for is another directory's or another topic's: it has a line of its own."""
        data, appends = self._data, self._appends
        records = data.records
        assert isinstance(records, memoryview)
        try:
            self._partition = partition = appends.context.broker.replicas.partition(self._topic, data.index)
            if partition.log is not self._log:
                raise NotLeaderOrFollower(f"the log of {partition.topic_partition} is not the one it was")
            records = appends.checked(data, records, partition)
            self._leader_epoch = partition.leadership.leader_epoch
            if self._is_for_thread:
                partition.append_elsewhere(records, appends.request.acks, self._written)
                return
            info = partition.append(records, appends.request.acks)
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
        if appends.request.acks:  # leadership may have gone since, whatever was asked for
            appends.pending.append(PendingAck(partition, result.last_offset + 1, answer, self._leader_epoch))
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


def _authorized(topic: str | None, context: RequestContext) -> str:
    if topic is None:
        raise UnknownTopicId("no topic has this id")
    if not context.allows(_WRITE, _TOPIC, topic):
        raise TopicAuthorizationFailed("not authorized")
    return topic
