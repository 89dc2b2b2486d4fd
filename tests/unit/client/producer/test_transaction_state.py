"""States of a transactional producer: which calls and which errors lead where."""

from __future__ import annotations

import pytest
from tests.support.producer_world import PRODUCER_ID, World

from barnabas.client.core.client_errors import IllegalState
from barnabas.client.producer.core.sender import SenderOptions
from barnabas.client.producer.core.transaction_state import TransactionState, TransactionStatus
from barnabas.core.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    KafkaError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TopicAuthorizationFailed,
    UnknownProducerId,
)
from barnabas.core.ids import TopicPartition

AT = TopicPartition("orders", 0)
S = TransactionStatus


def begun(version: int = 2) -> TransactionState:
    state = TransactionState("t")
    state.initialized(version)
    state.begin()
    return state


def test_a_transaction_begins_and_ends() -> None:
    state = begun()
    state.check_can_send()
    state.begin_commit()
    state.begin_commit()
    state.ended()
    assert state.status is S.READY
    state.begin()
    state.begin_abort()
    state.begin_abort()
    state.ended()
    assert state.status is S.READY


@pytest.mark.parametrize("call", ["check_can_send", "begin_commit", "begin_abort"])
def test_calls_without_a_transaction_are_refused(call: str) -> None:
    state = TransactionState("t")
    with pytest.raises(IllegalState):
        getattr(state, call)()
    state.initialized(2)
    with pytest.raises(IllegalState, match="ready"):
        getattr(state, call)()


def test_a_second_begin_is_refused() -> None:
    with pytest.raises(IllegalState, match="in a transaction"):
        begun().begin()


def test_a_failed_record_leaves_only_the_abort() -> None:
    state = begun()
    state.batch_failed(InvalidRecord("bad"))
    state.batch_failed(KafkaError("later"))
    assert state.status is S.ABORTABLE_ERROR
    for call in (state.check_can_send, state.begin_commit):
        with pytest.raises(InvalidRecord, match="bad"):
            call()
    state.begin_abort()
    state.ended()
    assert state.error is None
    state.begin()


@pytest.mark.parametrize(("version", "needed"), [(1, True), (2, False)])
def test_the_epoch_is_raised_by_the_producer_with_protocol_1_alone(version: int, needed: bool) -> None:
    state = begun(version)
    state.batch_failed(InvalidProducerEpoch())
    assert state.needs_new_epoch is needed
    state.begin_abort()
    state.ended()
    assert not state.needs_new_epoch


def test_a_fenced_producer_is_of_no_use() -> None:
    state = begun()
    state.request_failed(ProducerFenced("newer"))
    for call in (state.begin, state.check_can_send, state.begin_commit, state.begin_abort):
        with pytest.raises(ProducerFenced, match="newer"):
            call()
    state.batch_failed(InvalidRecord())
    assert state.is_fatal


def test_records_that_fail_during_an_abort_change_nothing() -> None:
    state = begun()
    state.begin_abort()
    state.batch_failed(InvalidRecord())
    assert state.status is S.ABORTING


def test_a_partition_that_is_refused_during_an_abort_leaves_the_producer_usable() -> None:
    state = begun(1)
    state.maybe_add(AT)
    state.begin_abort()
    state.request_failed(TopicAuthorizationFailed("orders"))
    assert state.status is S.ABORTING
    state.ended()
    state.begin()


@pytest.mark.parametrize(
    ("error", "is_end"), [(ProducerFenced("newer"), False), (TopicAuthorizationFailed("orders"), True)]
)
def test_an_abort_that_cannot_end_makes_the_producer_unusable(error: KafkaError, is_end: bool) -> None:
    state = begun(1)
    state.begin_abort()
    state.request_failed(error, is_end=is_end)
    assert state.is_fatal


def test_partitions_are_added_first_with_protocol_1() -> None:
    state = begun(1)
    assert state.maybe_add(AT)
    assert not state.maybe_add(AT)
    assert not state.may_send_to(AT)
    assert not state.is_begun_at_coordinator
    state.added({AT})
    assert state.may_send_to(AT)
    assert state.is_begun_at_coordinator
    assert not state.to_add


def test_partitions_are_added_by_the_write_with_protocol_2() -> None:
    state = begun(2)
    assert not state.may_send_to(AT)
    assert not state.maybe_add(AT)
    assert state.may_send_to(AT)


def test_offsets_alone_are_a_transaction() -> None:
    state = begun()
    state.has_group = True
    assert state.is_begun_at_coordinator


@pytest.mark.parametrize("error", [OutOfOrderSequenceNumber("gap"), UnknownProducerId("gone")])
def test_a_gap_ends_the_transaction_and_never_bumps_the_epoch(error: KafkaError) -> None:
    transaction = begun(2)
    transaction.maybe_add(AT)
    world = World(transaction=transaction)
    world.send(b"first")
    world.settle()
    row_error = [error]
    world.refuse = lambda _at, _batch: row_error[0]
    world.send(b"second")
    world.run()
    world.process()
    answer = world.wires[0][0].answer
    assert answer is not None
    answer.responses[0].partition_responses[0].log_start_offset = 0
    world.respond()
    assert transaction.status is S.ABORTABLE_ERROR
    assert type(transaction.error) is type(error)
    assert (world.state.producer_id, world.state.epoch) == (PRODUCER_ID, 0)


def test_an_expired_batch_that_was_sent_ends_the_transaction() -> None:
    transaction = begun(2)
    transaction.maybe_add(AT)
    world = World(transaction=transaction, delivery_timeout_ms=1_000)
    world.send(b"lost")
    world.run()
    world.clock.advance(1_000)
    world.run()
    assert transaction.status is S.ABORTABLE_ERROR


def test_a_new_id_numbers_from_0_again() -> None:
    transaction = begun(2)
    transaction.maybe_add(AT)
    world = World(transaction=transaction)
    world.send(b"first")
    world.settle()
    assert world.state.sequences(AT).next == 1
    world.state.set_id(PRODUCER_ID, 1)
    assert world.state.sequences(AT).next == 0
    world.send(b"second")
    world.settle()
    assert world.logs[0].values == [b"first", b"second"]


def test_batches_behind_a_refused_one_are_renumbered_and_unsent_ones_fail() -> None:
    transaction = begun(2)
    transaction.maybe_add(AT)
    world = World(transaction=transaction, options=SenderOptions(in_flight_max=3))
    world.send(b"first")
    world.settle()
    left = [InvalidRecord("bad")]
    world.refuse = lambda _at, _batch: left.pop() if left else None
    for number in range(4):
        world.send(b"%d" % number + b"x" * 190)
    assert len(world.run()) == 3
    world.settle()
    assert [value[:1] for value in world.logs[0].values[1:]] == [b"1", b"2"]
    assert world.state.epoch == 0, "a transactional producer keeps its epoch"
    assert [type(outcome) for _, _, outcome in world.outcomes()[1:]] == [
        InvalidRecord,
        tuple,
        tuple,
        InvalidRecord,
    ]
    assert transaction.status is S.ABORTABLE_ERROR


def test_a_fenced_producer_fails_everything() -> None:
    transaction = begun(2)
    transaction.maybe_add(AT)
    world = World(transaction=transaction)
    world.send(b"first")
    world.refuse = lambda _at, _batch: ProducerFenced("newer")
    world.run()
    world.send(b"second" + b"x" * 190)
    world.process()
    world.respond()
    world.run()
    assert all(isinstance(outcome, ProducerFenced) for _, _, outcome in world.outcomes())
    assert world.memory.available_bytes == world.memory.total_bytes
