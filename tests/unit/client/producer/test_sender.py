"""Sender: requests, answers, retries, splits and expiry, step by step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.producer_world import PRODUCER_ID, TOPIC, TOPIC_ID, World

from barnabas.client.core.metadata import Leader
from barnabas.client.producer.core.batch import ProducerBatch
from barnabas.client.producer.core.producer_state import EPOCH_MAX
from barnabas.client.producer.core.sender import SenderOptions
from barnabas.core.backoff import Backoff
from barnabas.core.errors import (
    DuplicateSequenceNumber,
    InvalidRecord,
    KafkaError,
    MessageTooLarge,
    NetworkException,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownProducerId,
)
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.records.batch import RecordBatch
from barnabas.records.compression import Codec

AT = TopicPartition(TOPIC, 0)


def once(error: KafkaError) -> Callable[[TopicPartition, RecordBatch], KafkaError | None]:
    left = [error]
    return lambda _at, _batch: left.pop() if left else None


def turn(world: World) -> None:
    """Send everything that can be sent, and take the answers."""
    world.run()
    while any(world.process(broker) for broker in world.wires):
        pass
    while any(world.respond(broker) for broker in world.wires):
        pass


def fill(world: World, count: int, size: int = 190, partition: int = 0) -> None:
    for number in range(count):
        assert world.send(b"%03d" % number + b"x" * size, partition)


def acked(world: World) -> World:
    """After the first acknowledgement, several requests may be in flight."""
    world.send(b"first")
    turn(world)
    return world


def test_several_batches_of_a_partition_are_in_flight_up_to_the_limit() -> None:
    world = acked(World(options=SenderOptions(in_flight_max=3)))
    fill(world, 5)
    assert [len(request.batches) for request in world.run()] == [1, 1, 1]
    assert world.run() == []
    world.process()
    world.respond()
    assert len(world.run()) == 1


def test_the_first_batch_of_an_epoch_goes_alone() -> None:
    world = World()
    fill(world, 3)
    assert len(world.run()) == 1
    world.process()
    world.respond()
    assert len(world.run()) == 2


def test_a_request_has_one_batch_of_each_partition_and_a_bounded_size() -> None:
    world = World(partitions=4, options=SenderOptions(request_bytes_max=700))
    for partition in range(4):
        fill(world, 1, partition=partition)
    requests = world.run()
    assert [len(request.batches) for request in requests] == [2, 2]
    assert all(request.size_bytes <= 700 for request in requests)
    assert requests[0].topic_ids == {TOPIC: TOPIC_ID}
    assert requests[0].names_ids


def test_a_batch_larger_than_a_request_goes_alone() -> None:
    world = World(options=SenderOptions(request_bytes_max=100))
    fill(world, 1, size=500)
    assert len(world.run()) == 1


def test_batches_of_a_ready_broker_go_along_without_their_linger() -> None:
    world = World(partitions=3, brokers=2, linger_ms=50)
    fill(world, 1, size=10, partition=0)
    fill(world, 1, size=10, partition=1)
    fill(world, 1, size=400, partition=2)
    (request,) = world.run()
    assert request.broker_id == 0
    assert {batch.topic_partition.partition for batch in request.batches} == {0, 2}
    assert world.sender.wake_ms == 50


def test_nothing_is_sent_without_a_leader_and_metadata_is_asked_for() -> None:
    world = World()
    world.metadata.topics.clear()
    world.send(b"v")
    assert world.run() == []
    assert world.sender.wants_metadata


def test_nothing_is_sent_without_a_producer_id() -> None:
    world = World(has_id=False)
    world.send(b"v")
    assert world.state.needs_id
    assert world.run() == []
    world.state.set_id(PRODUCER_ID, 0)
    assert len(world.run()) == 1


def test_nothing_is_sent_to_a_broker_that_takes_nothing_now() -> None:
    world = World()
    world.send(b"v")
    assert world.sender.requests(lambda _broker: False) == []
    assert len(world.run()) == 1


def test_a_retriable_refusal_is_sent_again_after_a_growing_pause() -> None:
    world = World(options=SenderOptions(backoff=Backoff(100, 1_000)))
    world.refuse = lambda _at, _batch: NotEnoughReplicas()
    world.send(b"v")
    pauses = []
    for _ in range(5):
        turn(world)
        pauses.append(world.accumulator.ready_at_ms(world.accumulator.queue(TOPIC, 0)))
        assert world.run() == []
        assert world.sender.wake_ms == pauses[-1]
        world.clock.advance(pauses[-1] - world.clock.monotonic_ms())
    gaps = [later - earlier for earlier, later in itertools.pairwise(pauses)]
    assert all(0.79 <= gap / wanted <= 1.21 for gap, wanted in zip(gaps, (200, 400, 800, 1_000), strict=True))
    world.refuse = lambda _at, _batch: None
    world.settle()
    assert world.logs[0].values == [b"v"]


def test_a_new_leader_gets_the_batch_at_once() -> None:
    world = World(brokers=2)
    world.move_leader(0, 1)
    world.send(b"v")
    turn(world)
    assert world.metadata.leader(TOPIC, 0) == Leader(1, 1)
    assert not world.sender.wants_metadata
    (request,) = world.run()
    assert request.broker_id == 1
    world.settle()
    assert world.logs[0].values == [b"v"]


def test_batches_that_a_former_leader_has_not_answered_come_before_new_ones() -> None:
    """The new leader would forget them: it recognises the last five batches of a producer alone."""
    world = acked(World(brokers=2))
    fill(world, 5)
    assert len(world.run()) == 5
    while world.process():
        pass
    world.move_leader(0, 1)
    world.metadata.update_leader(AT, Leader(1, 1))
    fill(world, 8)
    for _ in range(8):
        world.run()
        turn_of(world, 1)
    world.break_connection()
    world.settle()
    assert len(world.logs[0].values) == 1 + 5 + 8
    assert not world.accumulator.incomplete


def turn_of(world: World, broker: int) -> None:
    while world.process(broker):
        world.respond(broker)


def test_a_lost_connection_sends_the_same_numbers_again_in_order() -> None:
    world = acked(World())
    fill(world, 3)
    world.run()
    world.process()
    world.break_connection()
    assert world.sender.wants_metadata
    world.settle()
    assert [value[:3] for value in world.logs[0].values[1:]] == [b"000", b"001", b"002"]
    assert {batch[2] for batch in world.logs[0].batches[PRODUCER_ID]} == {0, 1, 2, 3}


def test_a_batch_that_is_too_large_is_sent_in_parts() -> None:
    world = World(batch_bytes=2_000)
    world.logs[0].size_max = 300
    for number in range(10):
        world.send(b"%d" % number + b"x" * 99)
    world.settle()
    assert [value[:1] for value in world.logs[0].values] == [b"%d" % number for number in range(10)]
    assert [outcome for _, _, outcome in world.outcomes()] == [(offset, -1) for offset in range(10)]
    assert world.memory.available_bytes == world.memory.total_bytes


def test_one_record_that_is_too_large_fails_and_the_next_is_sent() -> None:
    world = World()
    world.logs[0].size_max = 300
    world.send(b"x" * 400)
    world.send(b"small")
    world.settle()
    assert isinstance(world.outcomes()[0][2], MessageTooLarge)
    assert world.logs[0].values == [b"small"]


def test_a_duplicate_is_an_acknowledgement() -> None:
    world = World()
    world.refuse = once(DuplicateSequenceNumber())
    world.send(b"v")
    world.settle()
    assert world.outcomes()[0][2] == (-1, -1)


def test_a_fault_of_the_records_fails_the_batch_and_the_epoch_moves_on() -> None:
    world = acked(World())
    error = InvalidRecord("the batch")
    error.record_errors = ((0, "no key"),)
    world.refuse = once(error)
    fill(world, 3)
    world.settle()
    first, second, third = (outcome for _, _, outcome in world.outcomes()[1:])
    assert isinstance(first, InvalidRecord)
    assert str(first) == "no key"
    assert (second, third) == ((1, -1), (2, -1))
    assert world.state.epoch == 1


def test_an_unknown_producer_begins_again_under_a_new_epoch() -> None:
    world = acked(World())
    world.refuse = once(UnknownProducerId())
    world.send(b"v")
    world.run()
    world.process()
    answer = world.wires[0][0].answer
    assert answer is not None
    answer.responses[0].partition_responses[0].log_start_offset = 5
    world.respond()
    world.settle()
    assert world.logs[0].values == [b"first", b"v"]
    assert world.state.epoch == 1


def test_a_gap_closes_by_a_new_epoch() -> None:
    world = acked(World())
    world.logs[0].batches[PRODUCER_ID].append((90, 99, 0))
    fill(world, 3)
    world.settle()
    assert world.state.epoch == 1
    assert [value[:3] for value in world.logs[0].values[1:]] == [b"000", b"001", b"002"]


def test_new_batches_wait_for_those_of_the_old_epoch() -> None:
    world = World(partitions=2)
    for partition in (0, 1):
        world.send(b"first", partition)
    turn(world)
    fill(world, 1, partition=1)
    world.run()
    world.state.request_new_epoch(AT)
    fill(world, 1, partition=1)
    assert world.run() == [], "partition 1 has a batch of epoch 0 in flight"
    turn(world)
    world.settle()
    assert [batch[0] for batch in world.logs[1].batches[PRODUCER_ID]] == [0]
    assert world.logs[1].epochs[PRODUCER_ID] == 1
    assert len(world.logs[1].values) == 3


def test_a_batch_that_cannot_be_compressed_fails_alone() -> None:
    world = acked(World())
    fill(world, 1)
    sound = world.accumulator.options
    world.accumulator.options = replace(sound, codec=Codec.GZIP, compression_level=99)
    world.run()
    world.accumulator.options = sound
    fill(world, 1)
    world.settle()
    first, second = (outcome for _, _, outcome in world.outcomes()[1:])
    assert isinstance(first, ValueError)
    assert second == (1, -1)
    assert world.memory.available_bytes == world.memory.total_bytes


def test_batches_behind_one_that_cannot_be_made_are_sent_without_another_event() -> None:
    """The request stays empty, so no answer comes that would wake the sender."""
    world = acked(World())
    fill(world, 40)
    first, second = list(world.accumulator.incomplete)[:2]
    assert first.is_closed
    seal = world.accumulator.seal

    def refuse(batch: ProducerBatch) -> None:
        if batch is first:
            raise MemoryError
        seal(batch)

    world.accumulator.seal = refuse  # type: ignore[method-assign]
    world.run()
    assert not second.is_in_flight
    assert world.sender.wake_ms <= world.clock.monotonic_ms()
    world.settle()
    assert second.is_done
    assert second.error is None


def test_used_up_epochs_need_another_id() -> None:
    world = acked(World())
    world.state.epoch = world.state.sequences(AT).producer_epoch = EPOCH_MAX
    world.logs[0].epochs[PRODUCER_ID] = EPOCH_MAX
    world.refuse = once(OutOfOrderSequenceNumber())
    fill(world, 1)
    turn(world)
    world.run()
    assert world.state.needs_id
    world.state.set_id(8, 0)
    world.settle()
    assert world.logs[0].epochs[8] == 0
    assert len(world.logs[0].values) == 2


def test_a_batch_expires_and_frees_its_memory() -> None:
    world = World(delivery_timeout_ms=1_000)
    world.metadata.topics.clear()
    world.send(b"v")
    world.run()
    assert world.sender.wake_ms == 1_000
    world.clock.advance(1_000)
    world.run()
    (outcome,) = (outcome for _, _, outcome in world.outcomes())
    assert isinstance(outcome, RequestTimedOut)
    assert r"delivery.timeout.ms" in outcome.message
    assert world.memory.available_bytes == world.memory.total_bytes


def test_a_batch_that_expires_in_flight_keeps_its_memory_until_it_lands() -> None:
    world = acked(World(delivery_timeout_ms=1_000))
    world.send(b"v")
    world.run()
    world.clock.advance(1_000)
    world.run()
    assert isinstance(world.outcomes()[1][2], RequestTimedOut)
    assert world.memory.available_bytes < world.memory.total_bytes
    world.break_connection()
    assert world.memory.available_bytes == world.memory.total_bytes


def test_new_batches_wait_until_an_expired_one_is_resolved() -> None:
    world = acked(World(delivery_timeout_ms=1_000))
    world.send(b"lost" + b"x" * 190)
    world.run()
    world.clock.advance(600)
    world.send(b"next" + b"x" * 190)
    world.run()
    world.clock.advance(500)
    world.send(b"last" + b"x" * 190)
    assert world.run() == []
    world.process()
    world.process()
    world.respond()
    world.respond()
    assert len(world.run()) == 1
    assert world.state.epoch == 0, "the answer shows that the broker has the expired batch"


def test_a_batch_behind_an_expired_one_goes_in_the_same_run() -> None:
    world = World(delivery_timeout_ms=1_000)
    world.refuse = lambda _at, _batch: NotEnoughReplicas("few")
    fill(world, 1)
    turn(world)
    world.clock.advance(500)
    fill(world, 1)
    world.refuse = lambda _at, _batch: None
    world.clock.advance(500)
    (request,) = world.run()
    assert isinstance(world.sent[0][0].error, RequestTimedOut)
    assert request.batches == [world.sent[1][0]]


def test_retries_end_at_their_number() -> None:
    world = World(options=SenderOptions(retries=2))
    world.refuse = lambda _at, _batch: NotEnoughReplicas("few")
    world.send(b"v")
    for _ in range(3):
        turn(world)
        world.clock.advance(2_000)
    assert isinstance(world.outcomes()[0][2], NotEnoughReplicas)


def test_a_final_refusal_is_not_retried() -> None:
    world = World()
    world.refuse = once(TopicAuthorizationFailed("no"))
    world.send(b"v")
    turn(world)
    assert isinstance(world.outcomes()[0][2], TopicAuthorizationFailed)


def test_a_partition_that_an_answer_lacks_is_retried() -> None:
    world = World()
    world.send(b"v")
    (request,) = world.run()
    world.wires[0].clear()
    world.sender.answered(request, ProduceResponse(responses=[]), by_id=True)
    world.settle()
    assert world.logs[0].values == [b"v"]


def test_without_topic_ids_answers_go_by_name() -> None:
    world = World(is_idempotent=False)
    world.send(b"v")
    (request,) = world.run()
    request.topic_ids[TOPIC] = Uuid(bytes(16))
    assert not request.names_ids


def test_acks_0_is_done_when_it_is_written() -> None:
    world = World(is_idempotent=False, options=SenderOptions(acks=0))
    world.send(b"v")
    (request,) = world.run()
    world.sender.written(request)
    assert world.outcomes()[0][2] == (-1, -1)
    assert world.memory.available_bytes == world.memory.total_bytes


def test_one_request_of_a_partition_at_a_time_keeps_the_order() -> None:
    options = SenderOptions(in_flight_max=1, keeps_order=True)
    world = World(is_idempotent=False, options=options)
    fill(world, 2)
    assert len(world.run()) == 1
    world.break_connection()
    world.zombies.clear()
    world.settle()
    assert [value[:3] for value in world.logs[0].values] == [b"000", b"001"]


def test_abort_fails_what_was_never_sent_and_waits_for_the_rest() -> None:
    world = acked(World(options=SenderOptions(in_flight_max=1)))
    fill(world, 2)
    world.run()
    reason = NetworkException("aborted")
    world.sender.abort_unsent(reason)
    assert world.sent[2][0].outcome(0) is reason
    assert not world.sent[1][0].is_done
    world.sender.abort_all(reason)
    assert world.sent[1][0].outcome(0) is reason
    world.break_connection()
    assert world.memory.available_bytes == world.memory.total_bytes


def test_an_idle_sender_never_wakes() -> None:
    world = World()
    world.run()
    assert world.sender.wake_ms == math.inf


def test_metrics_count_records_retries_and_errors() -> None:
    world = World()
    world.refuse = once(NotEnoughReplicas())
    world.send(b"v")
    world.settle()
    values = {
        family.name: next(iter(family.members.values()))
        for family in world.metrics.families()
        if family.members
    }
    numbers = {name: getattr(member, "value", None) for name, member in values.items()}
    assert numbers["producer_record_send_total"] == 1
    assert numbers["producer_record_retry_total"] == 1
    assert numbers["producer_batch_total"] == 2
    assert numbers["producer_record_error_total"] == 0


@pytest.mark.parametrize("start", [0x7FFFFFF0, 0x7FFFFFFF])
def test_sequence_numbers_wrap(start: int) -> None:
    world = acked(World())
    sequences = world.state.sequences(AT)
    sequences.next, sequences.last_acked = start, start - 1
    batches = [world.send(b"%d" % number + b"x" * 190) for number in range(4)]
    assert all(batches)
    world.run()
    numbers = [batch.base_sequence for batch in sequences.outstanding]
    assert numbers == [(start + number) & 0x7FFFFFFF for number in range(4)]
