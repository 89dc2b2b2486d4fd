"""Fetch requests: brokers, memory, errors, the nearest replica. The brokers are answers in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.manual_time import ManualClock

from barnabas.client.consumer.core.fetch_plans import FetchOptions, FetchPlan, FetchPlans
from barnabas.client.consumer.core.handing_out import HandingOut
from barnabas.client.consumer.core.positions import Need, PartitionState, Positions
from barnabas.client.consumer.core.reset_strategy import TO_EARLIEST
from barnabas.client.core.metadata import Metadata
from barnabas.core.errors import (
    CorruptMessage,
    FetchSessionIdNotFound,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    UnknownServerError,
)
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.records.builder import BatchBuilder, build_end_transaction_marker
from barnabas.records.compression import Codec
from barnabas.records.record import EndTransactionMarker

ID = Uuid(b"i" * 16)


def batch(first: int, count: int, *, value: bytes = b"v", codec: Codec = Codec.NONE, **options: Any) -> bytes:
    builder = BatchBuilder(base_offset=first, codec=codec, leader_epoch=3, **options)
    for offset in range(first, first + count):
        builder.append(b"k%d" % offset, value, (), 1_000 + offset)
    return bytes(builder.build())


def abort_marker(offset: int) -> bytes:
    marker = EndTransactionMarker(is_commit=False, coordinator_epoch=0)
    built = build_end_transaction_marker(
        marker, producer_id=7, producer_epoch=0, timestamp=0, base_offset=offset
    )
    built[12:16] = (3).to_bytes(4)  # the leader epoch, which no checksum covers
    return bytes(built)


class World:
    """A consumer of topic `t` whose partitions are led by brokers 1 and 2 in turn."""

    def __init__(self, partitions: int = 2, **options: Any) -> None:
        self.clock = ManualClock()
        self.metadata = Metadata()
        self.metadata.wants_all = True
        self.lead({number: 1 + number % 2 for number in range(partitions)})
        self.positions = Positions()
        self.positions.add(TopicPartition("t", number) for number in range(partitions))
        for state in self.positions:
            state.seek(0)
        self.settle()
        self.plans = FetchPlans(self.positions, self.metadata, self.clock, FetchOptions(**options))
        self.hand = HandingOut(self.positions, None)

    def lead(self, leaders: dict[int, int], epoch: int = 3) -> None:
        rows = [
            MetadataResponsePartition(partition_index=number, leader_id=leader, leader_epoch=epoch)
            for number, leader in leaders.items()
        ]
        brokers = [MetadataResponseBroker(node_id=each, host="h", port=each) for each in (1, 2, 3)]
        topic = MetadataResponseTopic(name="t", topic_id=ID, partitions=rows)
        self.metadata.update(MetadataResponse(brokers=brokers, topics=[topic]), 0, None)

    def settle(self) -> None:
        self.positions.leaders_changed(self.metadata, can_validate=True)

    def state(self, number: int = 0) -> PartitionState:
        return self.positions.of(TopicPartition("t", number))

    def send(self) -> dict[int, FetchPlan]:
        return {plan.broker_id: plan for plan in self.plans.plans()}

    def answer(self, plan: FetchPlan, *rows: PartitionData, **fields: Any) -> bool:
        group = FetchableTopicResponse(topic_id=ID, partitions=list(rows))
        response = FetchResponse(responses=[group] if rows else [], session_id=9, **fields)
        return self.plans.answered(plan, response)

    def take(self, most: int = 1_000) -> list[int]:
        return [record.offset for record in self.hand.take(most)]


def data(
    number: int, records: bytes = b"", error: type[KafkaError] | None = None, **fields: Any
) -> PartitionData:
    return PartitionData(
        partition_index=number,
        error_code=0 if error is None else error.code,
        high_watermark=100,
        last_stable_offset=90,
        log_start_offset=0,
        records=memoryview(bytearray(records)),
        aborted_transactions=fields.pop("aborted", None),
        **fields,
    )


def named(plan: FetchPlan) -> list[tuple[int, int]]:
    return [(row.partition, row.fetch_offset) for topic in plan.request.topics for row in topic.partitions]


def test_each_broker_gets_one_request_with_its_partitions() -> None:
    world = World(4)
    plans = world.send()
    assert {broker: named(plan) for broker, plan in plans.items()} == {
        1: [(0, 0), (2, 0)],
        2: [(1, 0), (3, 0)],
    }
    assert world.send() == {}, "one request is in flight to each"
    assert plans[1].request.topics[0].topic_id == ID
    assert plans[1].request.topics[0].partitions[0].current_leader_epoch == 3


def test_an_answer_from_before_a_reassignment_is_dropped() -> None:
    world = World(1)
    world.answer(world.send()[1], data(0, batch(0, 100)))
    (old,) = world.send().values()
    assert named(old) == [(0, 100)]
    assert world.take(10) == list(range(10))
    at = TopicPartition("t", 0)
    world.positions.remove([at])
    world.positions.add([at])
    world.state().continue_at(10, -1, "")
    world.settle()
    assert not world.answer(old, data(0, batch(100, 50)))
    (plan,) = world.send().values()
    assert named(plan) == [(0, 10)]
    world.answer(plan, data(0, batch(10, 5)))
    assert world.take() == list(range(10, 15))


def test_an_old_answer_leaves_the_request_of_a_new_assignment_in_flight() -> None:
    world = World(1)
    (old,) = world.send().values()
    at = TopicPartition("t", 0)
    world.positions.remove([at])
    world.lead({0: 2}, epoch=4)
    world.positions.add([at])
    world.state().seek(0)
    world.settle()
    (plan,) = world.send().values()
    assert plan.broker_id == 2
    world.plans.failed(old)
    assert world.state().is_in_flight
    assert world.send() == {}


def test_records_arrive_and_the_next_batches_are_fetched_meanwhile() -> None:
    world = World(1)
    assert world.answer(world.send()[1], data(0, batch(0, 3)))
    (plan,) = world.send().values()
    assert named(plan) == [(0, 3)]
    assert plan.session.session_id == 9
    assert world.take(2) == [0, 1]
    assert world.state().position == 2
    assert world.state().high_watermark == 100
    world.answer(plan, data(0, batch(3, 2)))
    assert world.take() == [2, 3, 4]


def test_a_partition_with_a_full_buffer_holds_its_broker_back() -> None:
    world = World(3, partition_bytes=200)
    plans = world.send()
    world.answer(plans[1], data(0, batch(0, 50)))
    assert world.send() == {}, "a request for partition 2 alone would delay partition 0"
    while world.take(10):
        pass
    assert named(world.send()[1]) == [(0, 50)], "the session knows partition 2"


def test_memory_is_bounded_by_requests_in_flight_and_buffered_bytes() -> None:
    world = World(2, partition_bytes=1_000, max_bytes=1_000, buffer_bytes=1_500)
    plans = world.send()
    assert list(plans) == [1], "the second request would exceed the bound"
    assert plans[1].request.max_bytes <= 1_000
    world.answer(plans[1], data(0, batch(0, 60)))
    assert world.send() == {}
    world.take()
    world.take()
    assert len(world.send()) == 1


def test_one_request_is_always_allowed() -> None:
    world = World(1, partition_bytes=10_000, buffer_bytes=10)
    (plan,) = world.send().values()
    assert plan.request.max_bytes == 10
    world.answer(plan, data(0, batch(0, 100)))
    assert world.take() == list(range(100)), "one batch comes even if it is larger"


def test_paused_and_revoked_partitions_are_neither_fetched_nor_handed_out() -> None:
    for attribute in ("is_paused", "is_held", "is_revoked"):
        world = World(1)
        world.answer(world.send()[1], data(0, batch(0, 3)))
        setattr(world.state(), attribute, True)
        assert world.send() == {}
        assert world.take() == []
        setattr(world.state(), attribute, False)
        assert world.take() == [0, 1, 2]


def test_a_seek_drops_the_answer_that_is_under_way() -> None:
    world = World(1)
    (plan,) = world.send().values()
    world.state().seek(40)
    world.settle()
    world.answer(plan, data(0, batch(0, 3)))
    assert world.take() == []
    assert named(world.send()[1]) == [(0, 40)]


def test_records_below_the_position_are_dropped() -> None:
    world = World(1)
    world.state().seek(2)
    world.settle()
    world.answer(world.send()[1], data(0, batch(0, 4)))
    assert world.take() == [2, 3]


def test_aborted_transactions_are_hidden_from_read_committed_only() -> None:
    records = batch(0, 2, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = abort_marker(2)
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    for isolation, expected in ((1, [3]), (0, [0, 1, 3])):
        world = World(1, isolation=isolation)
        world.answer(world.send()[1], data(0, records + marker + batch(3, 1), aborted=aborted))
        assert world.take() == expected
        assert world.state().position == 4


def test_the_position_passes_a_marker_at_the_end() -> None:
    marker = abort_marker(1)
    world = World(1)
    world.answer(world.send()[1], data(0, batch(0, 1) + marker))
    assert world.take() == [0]
    assert world.take() == []
    assert world.state().position == 2


def test_a_batch_with_a_wrong_checksum_is_an_error_until_the_application_seeks_past_it() -> None:
    damaged = bytearray(batch(0, 2))
    damaged[-2] ^= 1
    world = World(1)
    world.answer(world.send()[1], data(0, bytes(damaged) + batch(2, 1)))
    for _ in range(2):
        with pytest.raises(CorruptMessage, match=r"t-0 at offset 0"):
            world.take()
    unchecked = World(1, checks_crc=False)
    unchecked.answer(unchecked.send()[1], data(0, bytes(damaged) + batch(2, 1)))
    assert unchecked.take() == [0, 1, 2]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_read(codec: Codec) -> None:
    world = World(1)
    world.answer(world.send()[1], data(0, batch(0, 50, codec=codec, value=b"x" * 100)))
    assert world.take() == list(range(50))


def test_a_leader_that_moved_is_looked_up_and_asked_again() -> None:
    world = World(1)
    world.answer(world.send()[1], data(0, error=NotLeaderOrFollower))
    assert world.plans.wants_metadata
    assert world.send() == {}
    world.lead({0: 2}, epoch=4)
    world.settle()
    world.clock.advance(100)
    assert list(world.send()) == [2]


def test_an_answer_that_names_the_new_leader_saves_the_look_up() -> None:
    world = World(1)
    current = LeaderIdAndEpoch(leader_id=2, leader_epoch=4)
    endpoints = [NodeEndpoint(node_id=2, host="elsewhere", port=9)]
    world.answer(
        world.send()[1],
        data(0, error=NotLeaderOrFollower, current_leader=current),
        node_endpoints=endpoints,
    )
    assert not world.plans.wants_metadata
    assert world.metadata.brokers[2].host == "elsewhere"
    world.settle()
    assert list(world.send()) == [2]


def test_an_offset_out_of_range_resets_or_raises() -> None:
    world = World(1, reset_to=TO_EARLIEST)
    world.answer(world.send()[1], data(0, error=OffsetOutOfRange))
    assert world.state().need is Need.RESET
    strict = World(1)
    strict.answer(strict.send()[1], data(0, error=OffsetOutOfRange))
    (error,) = strict.plans.errors
    assert isinstance(error, OffsetOutOfRange)


def test_buffered_records_are_handed_out_before_a_reset() -> None:
    world = World(1, reset_to=TO_EARLIEST)
    world.answer(world.send()[1], data(0, batch(0, 2)))
    world.answer(world.send()[1], data(0, error=OffsetOutOfRange))
    assert world.state().need is Need.NOTHING
    assert world.take() == [0, 1]
    world.take()
    world.clock.advance(100)
    world.answer(world.send()[1], data(0, error=OffsetOutOfRange))
    assert world.state().need is Need.RESET


def test_the_nearest_replica_is_used_until_it_fails() -> None:
    world = World(1, preferred_ms=1_000)
    world.answer(world.send()[1], data(0, preferred_read_replica=3))
    assert list(world.send()) == [3]
    world.plans.failed(world.plans._in_flight[3])
    world.clock.advance(100)
    plan = world.send()[1]
    world.answer(plan, data(0, preferred_read_replica=3))
    world.answer(world.send()[3], data(0, error=OffsetOutOfRange))
    assert list(world.send()) == [1], "a follower that lags does not reset the position"
    assert world.state().need is Need.NOTHING


def test_the_leader_is_asked_again_when_the_choice_is_old() -> None:
    world = World(1, preferred_ms=1_000)
    world.answer(world.send()[1], data(0, preferred_read_replica=3))
    world.answer(world.send()[3], data(0))
    world.clock.advance(1_000)
    assert list(world.send()) == [1]


def test_a_forgotten_session_is_opened_again_without_a_pause() -> None:
    world = World(1)
    world.answer(world.send()[1], data(0))
    (plan,) = world.send().values()
    world.plans.answered(plan, FetchResponse(error_code=FetchSessionIdNotFound.code))
    (plan,) = world.send().values()
    assert plan.session.is_full


def test_a_refused_topic_is_an_error_for_the_application() -> None:
    world = World(1)
    world.answer(world.send()[1], data(0, error=TopicAuthorizationFailed))
    (error,) = world.plans.errors
    assert isinstance(error, TopicAuthorizationFailed)
    assert error.message == "not authorized: READ on TOPIC t"


def test_a_broker_with_an_internal_error_is_asked_again() -> None:
    """The error is no business of the application, as with Java's consumer."""
    world = World(1)
    world.answer(world.send()[1], data(0, error=UnknownServerError))
    world.clock.advance(1_000)
    (plan,) = world.send().values()
    world.plans.answered(plan, FetchResponse(error_code=UnknownServerError.code))
    world.clock.advance(1_000)
    assert not world.plans.errors
    world.answer(world.send()[1], data(0, batch(0, 1)))
    assert [record.offset for record in world.hand.take(10)] == [0]


def test_a_refusal_that_lasts_is_one_error() -> None:
    """An application may be busy for an hour, and each retry is refused."""
    world = World(1)
    for _ in range(100):
        world.answer(world.send()[1], data(0, error=TopicAuthorizationFailed))
        world.clock.advance(1_000)
    assert len(world.plans.errors) == 1
    assert isinstance(world.plans.errors.take(), TopicAuthorizationFailed)
    assert not world.plans.errors
    world.answer(world.send()[1], data(0, error=TopicAuthorizationFailed))
    assert world.plans.errors, "it is told again"


def test_partitions_take_turns() -> None:
    world = World(3, partition_bytes=10_000)
    world.lead({0: 1, 1: 1, 2: 1})
    world.settle()
    (plan,) = world.send().values()
    rows: Sequence[PartitionData] = [data(number, batch(0, 2)) for number in range(3)]
    world.answer(plan, *rows)
    order = [world.hand.take(2)[0].partition for _ in range(3)]
    assert sorted(order) == [0, 1, 2]


def test_brokers_share_the_memory_bound() -> None:
    """A request that waits for records of many idle partitions leaves room for the other broker."""
    world = World(8, partition_bytes=100, buffer_bytes=400)
    assert {broker: plan.reserved_bytes for broker, plan in world.send().items()} == {1: 200, 2: 200}


def test_brokers_take_turns_when_there_is_room_for_one() -> None:
    world = World(2, partition_bytes=100, buffer_bytes=100)
    asked = []
    for _ in range(4):
        ((broker, plan),) = world.send().items()
        asked.append(broker)
        world.answer(plan, data(broker - 1))  # no records: its partition is idle
    assert asked == [1, 2, 1, 2]
