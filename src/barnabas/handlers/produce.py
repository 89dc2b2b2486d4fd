"""Produce (0), v0-13. Gaps: none.

Versions 0-2 carry message formats 0 and 1, which are converted up: a log holds v2 batches only,
unless an older broker wrote it.

Each partition gets its own answer, its own error included. With acks=0 nobody reads an answer,
so an error can only be told by closing the connection: the producer then looks for a new leader.

A request with a transactional id takes a detour first (`_admit_transactional`), which costs the
others one comparison. Large records, and those that come behind some, are written by a thread
(`_AppendElsewhere`): the answer waits for it, and nobody else does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress

from barnabas.coordinator.transaction.admission import (
    Admission,
    Admissions,
    Dialect,
    TransactionalWrite,
    is_transactional,
)
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
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.records.batch import ATTRIBUTES_AT, CODEC_MASK, MAGIC, MAGIC_AT, TRANSACTIONAL_FLAG
from barnabas.records.compression import Codec
from barnabas.records.legacy import convert_up
from barnabas.records.validation import is_one_batch
from barnabas.replication.leader.delayed_produce import PendingAck
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.requests.context import RequestContext
from barnabas.requests.failures import as_kafka_error
from barnabas.requests.leader_hints import add_leader_hints
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType
from barnabas.storage.log.append import AppendInfo
from barnabas.storage.log.append_elsewhere import when_written

VERSION_WITH_BATCHES = 3
CONVERTED_INLINE_BYTES_MAX = 16 * 1024
OLD_ATTRIBUTES_AT = MAGIC_AT + 1
INFLATES_AT_MOST = 32
"""Compressed messages may inflate to so many times what a batch may have: they are copied one by one."""
SHRINKS_AT_MOST = 4
"""The smallest message has 26 bytes, the smallest record of a batch seven."""
VERSION_WITH_LEADER_HINTS = 10
VERSION_WITH_ABORTABLE = 11
VERSION_WITH_IMPLICIT_ADD = 12
VERSION_WITH_TOPIC_IDS = 13
ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that may write internal topics, as in Apache Kafka."""


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


class _Outcome:
    """What came of the appends of one request, before anybody is told."""

    __slots__ = ("failed", "is_complete", "pending", "response", "touched", "unwritten")

    def __init__(self) -> None:
        self.response = ProduceResponse(responses=[])
        self.touched: list[Partition] = []
        self.pending: list[PendingAck] = []
        self.failed = False
        self.unwritten = 0
        """Appends that a thread writes."""
        self.is_complete = False
        """All others are done."""


def handle_produce(request: ProduceRequest, context: RequestContext) -> None:
    if context.broker.quotas.is_limiting:
        _charge(request, context)
    if context.api_version < VERSION_WITH_BATCHES and is_long_conversion(request):
        keep_records(request, context)
        context.answer_with(_convert_and_append(request, context))
    elif request.transactional_id is None or _refusal(request, context) is not None:
        _append_and_answer(request, context, None)
    else:
        _admit_transactional(
            request, context, lambda admission: _append_and_answer(request, context, admission)
        )


def _charge(request: ProduceRequest, context: RequestContext) -> None:
    size_bytes = sum(
        len(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
        if isinstance(data.records, memoryview)
    )
    principal = context.exchange.connection.principal
    context.throttle_ms = context.broker.quotas.charge_produce(principal.name, context.client_id, size_bytes)


def _admit_transactional(
    request: ProduceRequest, context: RequestContext, admit: Callable[[Admission | None], None]
) -> None:
    """Have the coordinator asked about writes that are new to their transaction. The records are a view of
    the network's buffer: if it cannot answer at once, they are copied and the connection waits, so that the
    producer's next request cannot overtake this one."""
    version, broker = context.api_version, context.broker
    adds_partitions = version >= VERSION_WITH_IMPLICIT_ADD
    dialect = Dialect(
        adds_partitions,
        is_verified=adds_partitions or broker.settings.transaction_partition_verification_enable,
        knows_abortable=version >= VERSION_WITH_ABORTABLE,
    )

    def wait() -> None:
        keep_records(request, context)
        context.exchange.hold()

    assert request.transactional_id is not None
    admissions = Admissions(broker.replicas, broker.transaction_membership, request.transactional_id, dialect)
    is_one_turn = len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1
    admissions.admit(list(_writes(request, context)), admit, wait, is_one_turn=is_one_turn)


def _writes(request: ProduceRequest, context: RequestContext) -> Iterator[TransactionalWrite]:
    """The transactional ones, of partitions that are here."""
    by_id = context.api_version >= VERSION_WITH_TOPIC_IDS
    for topic in request.topic_data:
        name = context.topic_name(topic.topic_id) if by_id else topic.name
        if name is None or not context.allows(Operation.WRITE, ResourceType.TOPIC, name):
            continue  # the append will say so
        for data in topic.partition_data:
            records = data.records
            if isinstance(records, memoryview) and is_transactional(records):
                with suppress(KafkaError):  # the append will say so
                    yield TransactionalWrite.of(context.broker.replicas.partition(name, data.index), records)


def keep_records(request: ProduceRequest, context: RequestContext) -> None:
    """The records are views of the network's buffer, which is used for something else after this turn."""
    if context.keeps_records:
        return
    context.keeps_records = True
    for topic in request.topic_data:
        for data in topic.partition_data:
            if isinstance(data.records, memoryview):
                data.records = context.exchange.keep_piece(data.records)


async def _convert_and_append(request: ProduceRequest, context: RequestContext) -> None:
    await convert_in_a_thread(request, context)
    _append_and_answer(request, context, None)


def _append_and_answer(request: ProduceRequest, context: RequestContext, admission: Admission | None) -> None:
    """What most requests have, one partition, at once; of several as many as the turn has time for."""
    outcome = _Outcome()
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        topic = topics[0]
        name = context.topic_name(topic.topic_id) if context.api_version >= 13 else topic.name
        answers: list[PartitionProduceResponse] = []
        outcome.response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
        _append(
            topic.partition_data[0],
            name,
            answers,
            _refusal(request, context),
            request,
            context,
            admission,
            outcome,
        )
        _complete(outcome, request, context)
    else:
        context.answer_in_slices(
            _append_and_answer_in_slices(request, context, admission, outcome),
            lambda: keep_records(request, context),
        )


def _append_and_answer_in_slices(
    request: ProduceRequest, context: RequestContext, admission: Admission | None, outcome: _Outcome
) -> Generator[None, None, None]:
    yield from _append_all(request, context, admission, outcome)
    _complete(outcome, request, context)


def _complete(outcome: _Outcome, request: ProduceRequest, context: RequestContext) -> None:
    """All appends are done, or begun."""
    outcome.is_complete = True
    if not outcome.unwritten:
        _answer_for(outcome, request, context)


def _answer_for(outcome: _Outcome, request: ProduceRequest, context: RequestContext) -> None:
    """The producer is answered first, then the readers that its records wake up."""
    replicas = context.broker.replicas
    required_acks = request.acks
    if required_acks == 0:
        if outcome.failed:
            context.exchange.close("a produce request with acks=0 failed")
        else:
            context.respond_nothing()
    elif outcome.pending:
        # Leadership may be lost while we wait, so only the end shows whether something failed.
        replicas.await_acks(
            request.timeout_ms, required_acks, outcome.pending, lambda: _answer(outcome.response, context)
        )
    elif outcome.failed:
        _answer(outcome.response, context)
    else:
        context.respond(outcome.response)
    for partition in outcome.touched:
        replicas.delayed.wake_soon(partition.topic_partition)


def _answer(response: ProduceResponse, context: RequestContext) -> None:
    if context.api_version >= VERSION_WITH_LEADER_HINTS:
        add_leader_hints(response, context)
    context.respond(response)


def _append_all(
    request: ProduceRequest, context: RequestContext, admission: Admission | None, outcome: _Outcome
) -> Generator[None, None, None]:
    by_id = context.api_version >= 13
    refusal = _refusal(request, context)
    for topic in request.topic_data:
        yield
        if not topic.partition_data:
            continue
        name = context.topic_name(topic.topic_id) if by_id else topic.name
        answers: list[PartitionProduceResponse] = []
        outcome.response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
        # Of a partition that is named twice only the last records count.
        for data in {data.index: data for data in topic.partition_data}.values():
            yield
            _append(data, name, answers, refusal, request, context, admission, outcome)


def _append(
    data: PartitionProduceData,
    topic: str | None,
    answers: list[PartitionProduceResponse],
    refusal: KafkaError | None,
    request: ProduceRequest,
    context: RequestContext,
    admission: Admission | None,
    outcome: _Outcome,
) -> None:
    """Append to one partition, which has its own answer."""
    required_acks = request.acks
    try:
        if refusal is not None:
            raise refusal
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
            len(records) >= log.environment.written_elsewhere_bytes_min
            and context.exchange.connection.has_company()
        )
        if is_for_thread or log.is_being_written:
            waiting = _AppendElsewhere(
                data, topic, partition, answers, request, context, admission, outcome, is_for_thread
            )
            waiting.wait()
            return
        if admission is not None:
            admission.check(partition.topic_partition, records)
        if context.api_version < 7:
            records = _from_old_producer(data, records, context, partition)
        info = partition.append(records, required_acks)
    except Exception as error:  # noqa: BLE001 - each partition has its own answer
        outcome.failed = True
        answers.append(_refused(data, error, topic, context.broker.replicas))
        return
    answer = _accepted(data, info)
    answers.append(answer)
    outcome.touched.append(partition)
    end_offset = info.last_offset + 1
    if required_acks and not partition.is_acknowledged(end_offset, required_acks):
        outcome.pending.append(PendingAck(partition, end_offset, answer))


class _AppendElsewhere:
    """An append that has its turn when what came before it is written, and whose write may be a thread's. The
    connection is read on meanwhile, unless too much is unwritten already."""

    __slots__ = (
        "_admission", "_answers", "_context", "_data", "_is_for_thread", "_leader_epoch", "_log", "_outcome",
        "_partition", "_request", "_size_bytes", "_slot", "_topic",
    )  # fmt: skip

    def __init__(
        self,
        data: PartitionProduceData,
        topic: str,
        partition: Partition,
        answers: list[PartitionProduceResponse],
        request: ProduceRequest,
        context: RequestContext,
        admission: Admission | None,
        outcome: _Outcome,
        is_for_thread: bool,
    ) -> None:
        assert isinstance(data.records, memoryview)
        self._is_for_thread = is_for_thread
        self._data = data
        self._topic = topic
        self._partition = partition
        self._answers = answers
        self._request = request
        self._context = context
        self._admission = admission
        self._outcome = outcome
        self._log = partition.log
        self._leader_epoch = NO_EPOCH
        self._size_bytes = len(data.records)
        self._slot = len(answers)

    def wait(self) -> None:
        """Get in line, which may be empty."""
        context, data, home = self._context, self._data, self._log.log_directory
        self._answers.append(PartitionProduceResponse(index=data.index))
        self._outcome.unwritten += 1
        home.unwritten_bytes += self._size_bytes
        if not context.keeps_records:
            assert isinstance(data.records, memoryview)
            data.records = context.exchange.lend_piece(data.records)
        if home.unwritten_bytes > UNWRITTEN_BYTES_MAX:
            context.exchange.hold()
        when_written(self._log, self._begin)

    def _begin(self) -> None:
        """Much may have changed in the line: the partition is looked for anew. A log that has taken the place
        of the one that was waited for is another directory's or another topic's: it has a line of its own."""
        data, context = self._data, self._context
        records = data.records
        assert isinstance(records, memoryview)
        try:
            self._partition = partition = context.broker.replicas.partition(self._topic, data.index)
            if partition.log is not self._log:
                raise NotLeaderOrFollower(f"the log of {partition.topic_partition} is not the one it was")
            if self._admission is not None:
                self._admission.check(partition.topic_partition, records)
            if context.api_version < 7:
                records = _from_old_producer(data, records, context, partition)
            self._leader_epoch = partition.leadership.leader_epoch
            if self._is_for_thread:
                partition.append_elsewhere(records, self._request.acks, self._written)
                return
            info = partition.append(records, self._request.acks)
        except Exception as error:  # noqa: BLE001 - each partition has its own answer
            self._refuse(error)
        else:
            self._written(info)

    def _written(self, result: AppendInfo | KafkaError) -> None:
        if isinstance(result, KafkaError):
            self._refuse(result)
            return
        outcome, partition = self._outcome, self._partition
        answer = _accepted(self._data, result)
        outcome.touched.append(partition)
        if self._request.acks:  # leadership may have gone since, whatever was asked for
            outcome.pending.append(PendingAck(partition, result.last_offset + 1, answer, self._leader_epoch))
        self._end(answer)

    def _refuse(self, error: Exception) -> None:
        self._outcome.failed = True
        self._end(_refused(self._data, error, self._topic, self._context.broker.replicas))

    def _end(self, answer: PartitionProduceResponse) -> None:
        outcome = self._outcome
        self._answers[self._slot] = answer
        self._log.log_directory.unwritten_bytes -= self._size_bytes
        outcome.unwritten -= 1
        if not outcome.unwritten:
            self._context.exchange.give_back()
            if outcome.is_complete:
                _answer_for(outcome, self._request, self._context)


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
    if not context.allows(Operation.WRITE, ResourceType.TOPIC, topic):
        raise TopicAuthorizationFailed("not authorized")
    return topic


def _refusal(request: ProduceRequest, context: RequestContext) -> KafkaError | None:
    """Transactional records need a transactional id that the producer may write under; one batch without
    it fails the whole request. The batches count, not what the request says of them."""
    transactional_id = request.transactional_id
    if transactional_id is not None and context.allows(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return None
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if not isinstance(records, memoryview) or len(records) <= ATTRIBUTES_AT + 1:
                continue
            if records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_FLAG and records[MAGIC_AT] == 2:
                return TransactionalIdAuthorizationFailed("transactional records need an authorized id")
    return None


def _from_old_producer(
    data: PartitionProduceData, records: memoryview, context: RequestContext, partition: Partition
) -> memoryview:
    """Consumers as old as this producer may not know zstd; before v3 it knew no batches either."""
    if not records:
        return records
    if len(records) <= MAGIC_AT:
        raise CorruptMessage("the records are cut short")
    if records[MAGIC_AT] < MAGIC:
        if context.api_version >= VERSION_WITH_BATCHES:
            raise InvalidRecord(f"Produce version {context.api_version} takes record batches of magic 2 only")
        partition.metrics.produce_conversions.value += 1
        return converted(data, context)
    if len(records) > ATTRIBUTES_AT + 1 and records[ATTRIBUTES_AT + 1] & CODEC_MASK == Codec.ZSTD:
        raise UnsupportedCompressionType("zstd needs Produce version 7 or later")
    return records


def _refused(
    data: PartitionProduceData, error: Exception, topic: str | None, replicas: ReplicaManager
) -> PartitionProduceResponse:
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


# Messages of formats 0 and 1 (v0-2) become one batch before they are appended, and that is work for each. A
# few are converted where they are; many, or compressed ones, of which nobody knows how many there are, in a
# thread, while the connection waits: a megabyte of small messages takes a second.


def is_long_conversion(request: ProduceRequest) -> bool:
    return any(_is_long(data.records) for topic in request.topic_data for data in topic.partition_data)


async def convert_in_a_thread(request: ProduceRequest, context: RequestContext) -> None:
    """Put converted records, or the error of their conversion, where `converted` finds them.

    The records are kept already: this begins after the turn in which they came.
    """
    context.converted = {}
    for topic in request.topic_data:
        bytes_max = context.broker.configs.topic_config(topic.name).max_message_bytes
        for data in topic.partition_data:
            if isinstance(data.records, memoryview) and _is_old(data.records):
                context.converted[id(data)] = await asyncio.to_thread(_convert, data.records, bytes_max)


def converted(data: PartitionProduceData, context: RequestContext) -> memoryview:
    """The records of `data` as one batch."""
    assert isinstance(data.records, memoryview)
    known: memoryview | KafkaError | None = (context.converted or {}).get(id(data))
    if known is None:
        return memoryview(convert_up(data.records))
    if isinstance(known, KafkaError):
        raise known
    return known


def _convert(records: memoryview, bytes_max: int) -> memoryview | KafkaError:
    try:
        if len(records) > SHRINKS_AT_MOST * bytes_max:
            raise MessageTooLarge(f"{len(records)} bytes of messages exceed the maximum of {bytes_max}")
        return memoryview(convert_up(records, limit_bytes=INFLATES_AT_MOST * bytes_max))
    except KafkaError as error:
        return error
    except Exception as error:  # noqa: BLE001 - told like any other fault of these bytes
        return CorruptMessage(f"the messages cannot be read: {type(error).__name__}")


def _is_long(records: object) -> bool:
    if not isinstance(records, memoryview) or not _is_old(records):
        return False
    return len(records) > CONVERTED_INLINE_BYTES_MAX or bool(records[OLD_ATTRIBUTES_AT] & CODEC_MASK)


def _is_old(records: memoryview) -> bool:
    return len(records) > OLD_ATTRIBUTES_AT and records[MAGIC_AT] < MAGIC


PRODUCE = Api(ApiKey.PRODUCE, versions=range(14), handle=handle_produce)
