"""Transactions: InitProducerId (22) with a transactional id, AddPartitionsToTxn (24), AddOffsetsToTxn (25),
EndTxn (26), DescribeTransactions (65), ListTransactions (66).

An AddPartitionsToTxn of no transactions is no case: Kafka does not answer it.

A transaction that has ended is completed in the background; a case waits for that (`at_rest`) before it goes
on, since CONCURRENT_TRANSACTIONS is a matter of luck.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from tests.differential.case import Case, InVersion, Until, case
from tests.differential.cases.produce import TRANSACTIONAL, produce
from tests.differential.world import NOWHERE, Topic, World
from tests.support.wire import batch

LOADING, UNAVAILABLE, MOVED, CONCURRENT = 14, 15, 16, 51
OLD_ADD, OLD_END, NEW_END, NEW_PRODUCE = 3, 4, 5, 12
CRC = slice(17, 21)
MAX_TIMEOUT_MS = 900_000
Owner = tuple[str, int, int]
"""A transactional id, and the producer id and epoch that its producer has."""


def found(*transactional_ids: str) -> Until:
    """The first transactional id makes the transaction topic, which takes Kafka a moment."""
    return Until(
        FindCoordinatorRequest(key_type=1, coordinator_keys=list(transactional_ids)),
        lambda answer: all(each.error_code == 0 for each in answer.coordinators),
    )


def init(
    transactional_id: str, producer_id: int = -1, epoch: int = -1, *, timeout_ms: int = 60_000
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def settled(request: InitProducerIdRequest) -> Until:
    passing = (LOADING, UNAVAILABLE, MOVED, CONCURRENT)
    return Until(request, lambda answer: answer.error_code not in passing)


def begun(world: World) -> Any:
    """A producer with a transactional id of its own."""
    transactional_id = world.new_name()
    yield found(transactional_id)
    answer = yield settled(init(transactional_id))
    return transactional_id, answer.producer_id, answer.producer_epoch


def parts(*topics: tuple[Topic, Sequence[int]]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=topic.name, partitions=list(numbers)) for topic, numbers in topics]


def old_add(owner: Owner, *topics: tuple[Topic, Sequence[int]]) -> InVersion:
    """Adds partitions as a producer before KIP-890 does, independent of the version under test."""
    return InVersion(_old_add(owner, *topics), OLD_ADD)


def _old_add(owner: Owner, *topics: tuple[Topic, Sequence[int]]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=owner[0],
        v3_and_below_producer_id=owner[1],
        v3_and_below_producer_epoch=owner[2],
        v3_and_below_topics=parts(*topics),
    )


def add(world: World, owner: Owner, *topics: tuple[Topic, Sequence[int]],
        verify: bool = False) -> AddPartitionsToTxnRequest:  # fmt: skip
    if world.version <= OLD_ADD:
        return _old_add(owner, *topics)
    return AddPartitionsToTxnRequest(transactions=[part_of_batch(owner, *topics, verify=verify)])


def part_of_batch(owner: Owner, *topics: tuple[Topic, Sequence[int]],
                  verify: bool = False) -> AddPartitionsToTxnTransaction:  # fmt: skip
    return AddPartitionsToTxnTransaction(
        transactional_id=owner[0],
        producer_id=owner[1],
        producer_epoch=owner[2],
        verify_only=verify,
        topics=parts(*topics),
    )


def add_offsets(owner: Owner, group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=owner[0], producer_id=owner[1], producer_epoch=owner[2], group_id=group
    )


def end(owner: Owner, *, commit: bool = True) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=owner[0], producer_id=owner[1], producer_epoch=owner[2], committed=commit
    )


def describe(*transactional_ids: str) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=list(transactional_ids))


def at_rest(transactional_id: str) -> Until:
    return Until(
        describe(transactional_id),
        lambda answer: (
            answer.transaction_states[0].transaction_state in ("Empty", "CompleteCommit", "CompleteAbort")
        ),
    )


def write(world: World, owner: Owner, topic: Topic, sequence: int = 0, *, partition: int = 0,
          version: int = NEW_PRODUCE) -> InVersion:  # fmt: skip
    """One record in the transaction; from version 12 on this adds the partition, too."""
    records = batch(
        [b"v"],
        producer_id=owner[1],
        producer_epoch=owner[2],
        base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )
    world.given.append(records[CRC])
    return InVersion(produce(topic, records, partition=partition, transactional_id=owner[0]), version)


def producers(topic: Topic) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[TopicRequest(name=topic.name, partition_indexes=[0])])


def other_epoch(owner: Owner, epoch: int) -> Owner:
    return owner[0], owner[1], epoch


def strangers(owner: Owner) -> list[Owner]:
    """Owners that this one could be taken for."""
    name, producer_id, epoch = owner
    return [
        ("unheard-of", producer_id, epoch),
        ("", producer_id, epoch),
        (name, 987_654_321, epoch),
        (name, -1, epoch),
        (name, producer_id, epoch + 1),
        (name, producer_id, epoch - 1),
        (name, producer_id, 32_767),
        (name, -1, -1),
    ]


# InitProducerId


@case(ApiKey.INIT_PRODUCER_ID)
def a_transactional_producer(world: World) -> Case:
    name = world.new_name()
    yield found(name)
    yield settled(init(name))
    yield settled(init(name))
    yield settled(init(name, timeout_ms=1))
    yield describe(name)


@case(ApiKey.INIT_PRODUCER_ID)
def transaction_timeouts(world: World) -> Case:
    name = world.new_name()
    yield found(name)
    for timeout_ms in (0, -1, MAX_TIMEOUT_MS + 1, 2**31 - 1):
        yield settled(init(name, timeout_ms=timeout_ms))
    yield describe(name)
    yield settled(init(name, timeout_ms=MAX_TIMEOUT_MS))
    yield describe(name)


@case(ApiKey.INIT_PRODUCER_ID, "3+")
def a_transactional_producer_that_comes_back(world: World) -> Case:
    name, producer_id, epoch = yield from begun(world)
    yield init(name, producer_id, epoch)
    yield init(name, producer_id, epoch)  # its answer was lost
    yield init(name, producer_id, epoch + 1)
    yield init(name, producer_id, epoch)
    yield init(name, producer_id, epoch + 9)
    yield init(name, 987_654_321, epoch)
    yield init(name, -1, epoch)
    yield init(name, producer_id, -1)
    yield init(name, -2, -2)
    yield init(name)
    yield init(name, producer_id, epoch + 2)
    yield describe(name)


@case(ApiKey.INIT_PRODUCER_ID, "3+")
def a_producer_that_was_forgotten(world: World) -> Case:
    name = world.new_name()
    yield found(name)
    yield settled(init(name, 987_654_321, 3))
    yield settled(init(name, 987_654_321, 0))
    yield describe(name)


@case(ApiKey.INIT_PRODUCER_ID)
def a_transaction_left_open(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic()
    yield old_add(owner, (topic, [0]))
    yield write(world, owner, topic)
    yield init(owner[0])
    yield settled(init(owner[0]))
    yield describe(owner[0])
    yield InVersion(end(owner), OLD_END)
    yield producers(topic)


@case(ApiKey.INIT_PRODUCER_ID, "3+")
def a_transaction_left_open_by_oneself(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic()
    yield old_add(owner, (topic, [0]))
    yield init(owner[0], owner[1], owner[2] + 5)
    yield settled(init(owner[0], owner[1], owner[2]))
    yield describe(owner[0])


@case(ApiKey.INIT_PRODUCER_ID, "3+")
def a_transaction_that_took_too_long(world: World) -> Case:
    name = world.new_name()
    yield found(name)
    for version in (OLD_END, NEW_END):
        answer = yield settled(init(name, timeout_ms=1))
        owner = name, answer.producer_id, answer.producer_epoch
        topic = world.topic()
        yield write(world, owner, topic)
        yield at_rest(name)
        yield InVersion(end(owner), version)
        yield init(name, owner[1], owner[2] + 2)
        yield init(name, owner[1], owner[2])
        yield init(name, owner[1], owner[2])
        yield producers(topic)


@case(ApiKey.INIT_PRODUCER_ID)
def after_each_end(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic()
    for commit in (True, False):
        yield old_add(owner, (topic, [0]))
        yield InVersion(end(owner, commit=commit), OLD_END)
        yield at_rest(owner[0])
        answer = yield settled(init(owner[0]))
        owner = other_epoch(owner, answer.producer_epoch)
        yield describe(owner[0])


# AddPartitionsToTxn


@case(ApiKey.ADD_PARTITIONS_TO_TXN)
def partitions_of_a_transaction(world: World) -> Case:
    owner = yield from begun(world)
    one, other = world.topic(2), world.topic()
    yield add(world, owner, (one, [0]))
    yield describe(owner[0])
    yield add(world, owner, (one, [0]))
    yield add(world, owner, (one, [1, 0]), (other, [0]))
    yield describe(owner[0])


@case(ApiKey.ADD_PARTITIONS_TO_TXN)
def partitions_that_are_not(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic()
    yield add(world, owner, (NOWHERE, [0]))
    yield add(world, owner, (topic, [1]))
    yield add(world, owner, (topic, [0, 1]), (NOWHERE, [0]))
    yield add(world, owner, (topic, [-1]))
    yield add(world, owner, (Topic(""), [0]))
    yield describe(owner[0])


@case(ApiKey.ADD_PARTITIONS_TO_TXN)
def no_partitions(world: World) -> Case:
    owner = yield from begun(world)
    yield add(world, owner)
    yield add(world, owner, (world.shared("letters"), []))
    yield describe(owner[0])


@case(ApiKey.ADD_PARTITIONS_TO_TXN)
def added_by_strangers(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic()
    for stranger in strangers(owner):
        yield add(world, stranger, (topic, [0]))
    yield add(world, ("unheard-of", 1, 0), (NOWHERE, [0]))
    yield describe(owner[0])


@case(ApiKey.ADD_PARTITIONS_TO_TXN)
def after_the_end(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic()
    for commit in (True, False):
        yield add(world, owner, (topic, [0]))
        yield InVersion(end(owner, commit=commit), OLD_END)
        yield at_rest(owner[0])
    yield add(world, owner, (topic, [0]))
    yield describe(owner[0])


@case(ApiKey.ADD_PARTITIONS_TO_TXN)
def after_the_end_of_an_epoch(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic()
    yield add(world, owner, (topic, [0]))
    yield InVersion(end(owner), NEW_END)
    yield at_rest(owner[0])
    yield add(world, owner, (topic, [0]))
    yield add(world, other_epoch(owner, owner[2] + 1), (topic, [0]))
    yield describe(owner[0])


@case(ApiKey.ADD_PARTITIONS_TO_TXN, "4+")
def verifying(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic(2)
    yield add(world, owner, (topic, [0]), verify=True)
    yield old_add(owner, (topic, [0]))
    yield add(world, owner, (topic, [0]), verify=True)
    yield add(world, owner, (topic, [0, 1]), verify=True)
    yield add(world, owner, (NOWHERE, [0]), verify=True)
    yield add(world, owner, verify=True)
    for stranger in strangers(owner):
        yield add(world, stranger, (topic, [0]), verify=True)
    yield InVersion(end(owner), OLD_END)
    yield at_rest(owner[0])
    yield add(world, owner, (topic, [0]), verify=True)


@case(ApiKey.ADD_PARTITIONS_TO_TXN, "4+")
def several_transactions_at_once(world: World) -> Case:
    topic = world.topic(2)
    first = yield from begun(world)
    second = yield from begun(world)
    yield AddPartitionsToTxnRequest(
        transactions=[
            part_of_batch(first, (topic, [0])),
            part_of_batch(second, (topic, [0, 1])),
            part_of_batch(("unheard-of", 1, 0), (topic, [0])),
            part_of_batch(("unknown-partition", 1, 0), (topic, [7])),
        ]
    )
    yield describe(first[0], second[0])
    yield AddPartitionsToTxnRequest(
        transactions=[
            part_of_batch(first, (topic, [0, 1]), verify=True),
            part_of_batch(second, (topic, [7, 1])),
        ]
    )


# AddOffsetsToTxn


@case(ApiKey.ADD_OFFSETS_TO_TXN)
def offsets_of_a_group(world: World) -> Case:
    owner = yield from begun(world)
    yield add_offsets(owner, "group")
    yield add_offsets(owner, "group")
    yield describe(owner[0])
    yield InVersion(end(owner), OLD_END)
    yield at_rest(owner[0])
    yield add_offsets(owner, "group")
    yield InVersion(end(owner, commit=False), NEW_END)
    yield at_rest(owner[0])
    yield add_offsets(owner, "group")


@case(ApiKey.ADD_OFFSETS_TO_TXN)
def offsets_of_no_group(world: World) -> Case:
    owner = yield from begun(world)
    yield add_offsets(owner, "")
    yield describe(owner[0])


@case(ApiKey.ADD_OFFSETS_TO_TXN)
def offsets_of_strangers(world: World) -> Case:
    owner = yield from begun(world)
    for stranger in strangers(owner):
        yield add_offsets(stranger, "group")
    yield describe(owner[0])


# EndTxn


@case(ApiKey.END_TXN)
def ended_twice(world: World) -> Case:
    for commit in (True, False):
        owner = yield from begun(world)
        topic = world.topic()
        yield old_add(owner, (topic, [0]))
        yield write(world, owner, topic)
        yield end(owner, commit=commit)
        yield at_rest(owner[0])
        yield end(owner, commit=commit)
        yield end(owner, commit=not commit)
        yield describe(owner[0])
        yield producers(topic)


@case(ApiKey.END_TXN)
def one_transaction_after_the_other(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic()
    for number, commit in enumerate((True, False, False, True)):
        yield old_add(owner, (topic, [0]))
        yield write(world, owner, topic, 0 if world.version >= NEW_END else number)
        answer = yield end(owner, commit=commit)
        yield at_rest(owner[0])
        if world.version >= NEW_END:
            owner = owner[0], answer.producer_id, answer.producer_epoch
    yield describe(owner[0])
    yield producers(topic)


@case(ApiKey.END_TXN)
def nothing_to_end(world: World) -> Case:
    for commit in (True, False):
        owner = yield from begun(world)
        yield end(owner, commit=commit)
        yield at_rest(owner[0])
        yield end(owner, commit=not commit)
        yield at_rest(owner[0])
        yield end(other_epoch(owner, owner[2] + 1), commit=commit)
        yield at_rest(owner[0])


@case(ApiKey.END_TXN)
def no_records_in_it(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic()
    yield old_add(owner, (topic, [0]))
    yield end(owner)
    yield at_rest(owner[0])
    yield producers(topic)


@case(ApiKey.END_TXN)
def ended_by_strangers(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic()
    for stranger in strangers(owner):
        yield end(stranger)
    yield old_add(owner, (topic, [0]))
    for stranger in strangers(owner):
        yield end(stranger, commit=False)
    yield describe(owner[0])


@case(ApiKey.END_TXN)
def ended_by_the_one_before(world: World) -> Case:
    first = yield from begun(world)
    topic = world.topic()
    yield old_add(first, (topic, [0]))
    yield InVersion(init(first[0]), 5)
    answer = yield settled(init(first[0]))
    yield end(first)
    yield end(first, commit=False)
    yield end(other_epoch(first, answer.producer_epoch - 1), commit=False)
    second = other_epoch(first, answer.producer_epoch)
    yield end(second)
    yield old_add(second, (topic, [0]))
    yield end(second)
    yield at_rest(first[0])


@case(ApiKey.END_TXN)
def the_next_after_a_commit(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic()
    yield write(world, owner, topic)
    yield end(owner)
    yield at_rest(owner[0])
    following = other_epoch(owner, owner[2] + 1) if world.version >= NEW_END else owner
    yield write(world, following, topic, 0 if world.version >= NEW_END else 1)
    if world.version >= NEW_END:
        yield end(owner)  # late: it must not end the next
        yield describe(owner[0])
    yield end(following, commit=False)
    yield at_rest(owner[0])
    yield producers(topic)


# DescribeTransactions and ListTransactions


@case(ApiKey.DESCRIBE_TRANSACTIONS)
def transactions_that_are_not(world: World) -> Case:
    yield found("unheard-of")
    yield describe()
    yield describe("unheard-of")
    yield describe("")
    yield describe("unheard-of", "", "another")


@case(ApiKey.DESCRIBE_TRANSACTIONS)
def each_state(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic(3)
    yield describe(owner[0], owner[0])
    yield old_add(owner, (topic, [2, 0]))
    yield describe(owner[0])
    yield InVersion(end(owner), NEW_END)
    yield at_rest(owner[0])
    owner = other_epoch(owner, owner[2] + 1)
    yield old_add(owner, (topic, [1]))
    yield InVersion(end(owner, commit=False), OLD_END)
    yield at_rest(owner[0])


def listed(states: Sequence[str] = (), producer_ids: Sequence[int] = (), duration_ms: int = -1,
           pattern: str | None = None) -> ListTransactionsRequest:  # fmt: skip
    return ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )


@case(ApiKey.LIST_TRANSACTIONS)
def some_transactions(world: World) -> Case:
    idle = yield from begun(world)
    busy = yield from begun(world)
    topic = world.topic()
    yield old_add(busy, (topic, [0]))
    both = [idle[1], busy[1]]
    yield listed(producer_ids=both)
    yield listed(producer_ids=[*both, 987_654_321, -1])
    yield listed(producer_ids=[987_654_321])
    for states in (["Empty"], ["Ongoing"], ["Ongoing", "Empty"], ["CompleteCommit"], ["Dead"], ["ongoing"],
                   ["Nonsense", "Ongoing"], ["Nonsense"], [""], ["PrepareEpochFence"]):  # fmt: skip
        yield listed(states, both)
    yield InVersion(end(busy), OLD_END)
    yield at_rest(busy[0])
    yield listed(["CompleteCommit"], both)


@case(ApiKey.LIST_TRANSACTIONS, "1+")
def transactions_by_age(world: World) -> Case:
    idle = yield from begun(world)
    busy = yield from begun(world)
    topic = world.topic()
    yield old_add(busy, (topic, [0]))
    both = [idle[1], busy[1]]
    for duration_ms in (-1, 3_600_000, 2**62, -2, -(2**63)):
        yield listed(producer_ids=both, duration_ms=duration_ms)


@case(ApiKey.LIST_TRANSACTIONS, "2+")
def transactions_by_name(world: World) -> Case:
    first = yield from begun(world)
    second = yield from begun(world)
    both = [first[1], second[1]]
    stem = re.escape(world.stem)
    for pattern in (f"{stem}-.*", f"{stem}-0", f"{stem}-[1-9]", stem, ".*", "", "nobody", "(", "["):
        yield listed(producer_ids=both, pattern=pattern)
    yield listed(["Nonsense"], both, pattern=".*")
