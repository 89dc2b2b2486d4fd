"""Before a transactional write: is its partition part of the producer's transaction?

A write that comes too late, from a producer that was fenced or in a transaction that has ended, would open a
transaction that nobody ever ends, and hold up all committed readers of the partition. So the first write of
a producer's transaction to a partition is checked with the coordinator (KIP-890); once the log itself has the
transaction open under this epoch, it knows. That it has not ended before the write is made is the business of
`verification`. From version 12 on the check is an addition: the producer no
longer sends AddPartitionsToTxn.

The records are a view of the network's buffer. If the coordinator cannot answer at once, they are copied and
the connection waits, so that the producer's next request cannot overtake this one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from barnabas.coordinator.transaction.errors import as_produce_error, not_in_transaction
from barnabas.coordinator.transaction.rules import ProducerIdAndEpoch
from barnabas.coordinator.transaction.settings import EPOCH_BUMP_VERSION
from barnabas.coordinator.transaction.verification import Verification
from barnabas.core.errors import InvalidProducerIdMapping, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.records.batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL_FLAG,
)
from barnabas.requests.context import RequestContext

VERSION_WITH_TOPIC_IDS = 13
VERSION_WITH_IMPLICIT_ADD = 12
VERSION_WITH_ABORTABLE = 11

_PRODUCER = struct.Struct(">qhi")
"""With the sequence of the first record."""

Refused = Mapping[TopicPartition, KafkaError]
NONE_REFUSED: Refused = {}


class Admission:
    """Which of the request's partitions may be written to, asked when that is done."""

    __slots__ = ("_refused", "_verification")

    def __init__(self, refused: Refused, verification: Verification | None) -> None:
        self._refused = refused
        self._verification = verification

    def check(self, topic_partition: TopicPartition, records: memoryview) -> None:
        error = self._refused.get(topic_partition)
        if error is not None:
            raise error
        if self._verification is not None and _is_transactional(records):
            self._verification.check(topic_partition)


class _Write(NamedTuple):
    """A transactional write of the request to a partition that is led here."""

    partition: TopicPartition
    producer: ProducerIdAndEpoch
    sequence: int
    is_ongoing: bool


def admit_transactional(
    request: ProduceRequest, context: RequestContext, admit: Callable[[Admission | None], None]
) -> None:
    """Call `admit`, now or later; with nothing where every write is known to be part of its transaction."""
    writes = list(_writes(request, context))
    unchecked = [each for each in writes if not each.is_ongoing]
    if not unchecked:
        # Several partitions may be written in several turns of the loop, those that are led elsewhere too: a
        # marker may come in between.
        is_one_turn = len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1
        admit(None if is_one_turn else Admission(NONE_REFUSED, _guarded(writes, context)))
        return
    partitions = [each.partition for each in unchecked]
    producer, *others = {each.producer for each in unchecked}
    if others:
        error = InvalidProducerIdMapping("the records of one request come from several producers")
        admit(Admission(dict.fromkeys(partitions, error), None))
        return
    verification = _guarded(writes, context)
    answer = _Answer(lambda refused: admit(Admission(refused, verification)))
    _ask(request, context, partitions, producer, answer)
    if not answer.is_given:
        keep_records(request, context)
        context.exchange.hold()
    answer.may_pass()


def _guarded(writes: Sequence[_Write], context: RequestContext) -> Verification | None:
    if not _is_verified(context):
        return None
    verification = Verification(context.broker.replicas, _not_in_transaction(context))
    # Where each transaction has an epoch of its own, its first write to a partition has the sequence 0.
    is_from_zero = context.api_version >= VERSION_WITH_IMPLICIT_ADD
    for each in writes:
        verification.begin(each.partition, each.producer, 0 if is_from_zero else each.sequence)
    return verification


class _Answer:
    """The coordinator's answer, handed on when it is there and the records are safe."""

    __slots__ = ("_admit", "_is_passing", "_refused")

    def __init__(self, admit: Callable[[Refused], None]) -> None:
        self._admit = admit
        self._refused: Refused | None = None
        self._is_passing = False

    @property
    def is_given(self) -> bool:
        return self._refused is not None

    def give(self, refused: Refused) -> None:
        self._refused = refused
        if self._is_passing:
            self._admit(refused)

    def may_pass(self) -> None:
        self._is_passing = True
        if self._refused is not None:
            self._admit(self._refused)


def _writes(request: ProduceRequest, context: RequestContext) -> Iterator[_Write]:
    replicas = context.broker.replicas
    by_id = context.api_version >= VERSION_WITH_TOPIC_IDS
    for topic in request.topic_data:
        name = context.topic_name(topic.topic_id) if by_id else topic.name
        if name is None:
            continue
        for data in topic.partition_data:
            records = data.records
            if not isinstance(records, memoryview) or not _is_transactional(records):
                continue
            producer_id, epoch, sequence = _PRODUCER.unpack_from(records, PRODUCER_ID_AT)
            producer = ProducerIdAndEpoch(producer_id, epoch)
            try:
                log = replicas.partition(name, data.index).log
            except KafkaError:
                continue  # the append will say so
            is_ongoing = log.producers.has_ongoing_transaction(*producer)
            yield _Write(TopicPartition(name, data.index), producer, sequence, is_ongoing)


def _is_transactional(records: memoryview) -> bool:
    return (
        len(records) >= HEADER_BYTES
        and records[MAGIC_AT] == MAGIC
        and bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_FLAG)
    )


def _is_verified(context: RequestContext) -> bool:
    return (
        context.api_version >= VERSION_WITH_IMPLICIT_ADD
        or context.broker.settings.transaction_partition_verification_enable
    )


def _not_in_transaction(context: RequestContext) -> KafkaError:
    return not_in_transaction(knows_abortable=context.api_version >= VERSION_WITH_ABORTABLE)


def _ask(
    request: ProduceRequest,
    context: RequestContext,
    partitions: list[TopicPartition],
    producer: ProducerIdAndEpoch,
    answer: _Answer,
) -> None:
    transactional_id = request.transactional_id
    assert transactional_id is not None
    membership = context.broker.transaction_membership

    def refuse(error: KafkaError) -> None:
        answer.give(dict.fromkeys(partitions, as_produce_error(error)))

    def added(error: KafkaError | None) -> None:
        refuse(error) if error is not None else answer.give(NONE_REFUSED)

    def verified(missing: frozenset[TopicPartition]) -> None:
        answer.give(dict.fromkeys(missing, _not_in_transaction(context)))

    if context.api_version >= VERSION_WITH_IMPLICIT_ADD:
        membership.add_partitions(
            transactional_id, producer, partitions, added, client_transaction_version=EPOCH_BUMP_VERSION
        )
    elif _is_verified(context):
        membership.verify(transactional_id, producer, partitions, verified, refuse)
    else:
        answer.give(NONE_REFUSED)


def keep_records(request: ProduceRequest, context: RequestContext) -> None:
    """The records are views of the network's buffer, which is used for something else after this turn."""
    if context.keeps_records:
        return
    context.keeps_records = True
    for topic in request.topic_data:
        for data in topic.partition_data:
            if isinstance(data.records, memoryview):
                data.records = context.exchange.keep_piece(data.records)
