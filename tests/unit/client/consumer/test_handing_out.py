"""Records on their way to the application: slices, positions, interceptors, deserializers; the decoder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.consumer.core.decoding import decode_records
from barnabas.client.consumer.core.fetched_data import Chunk
from barnabas.client.consumer.core.handing_out import HandingOut
from barnabas.client.consumer.core.positions import PartitionState, Positions
from barnabas.client.consumer.core.reset_strategy import TO_EARLIEST, ResetStrategy, parse_reset
from barnabas.client.consumer.core.subscription import Subscription
from barnabas.client.core.client_errors import DeserializationFailed, IllegalState
from barnabas.client.core.metadata import Leader, Metadata
from barnabas.client.core.offsets import CommittedOffset
from barnabas.client.extensions.interceptors import ConsumerInterceptor, ConsumerInterceptors
from barnabas.client.extensions.records import Record
from barnabas.core.errors import InvalidConfig, InvalidRecord, InvalidTopicException
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.records.batch import read_batch
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Codec
from barnabas.records.record import iterate_records

AT = TopicPartition("t", 0)


def batch(first: int, values: Sequence[bytes | None], codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(base_offset=first, codec=codec, leader_epoch=5)
    for value in values:
        builder.append(b"k", value, (), 1_000)
    return bytes(builder.build())


def loaded(*batches: bytes, **options: Any) -> tuple[PartitionState, HandingOut]:
    positions = Positions()
    positions.add([AT])
    state = positions.of(AT)
    state.seek(0)
    state.add(Chunk(AT, memoryview(bytearray(b"".join(batches)))))
    return state, HandingOut(positions, options.get("deserialize"), options.get("interceptors"))


def walk(hand: HandingOut, count: int) -> list[int]:
    """`async for`, as far as the records that are buffered."""
    offsets = []
    for _ in range(count):
        if hand.index >= len(hand.slice):
            assert hand.next_slice(500)
        hand.index += 1
        offsets.append(hand.slice[hand.index - 1].offset)
    return offsets


def test_the_position_follows_each_record_that_was_handed_out() -> None:
    _state, hand = loaded(batch(0, [b""] * 5))
    assert walk(hand, 2) == [0, 1]
    assert hand.offsets()[AT].offset == 2
    assert hand.offsets()[AT].leader_epoch == 5
    hand.abandon()
    assert walk(hand, 3) == [2, 3, 4], "the rest of the slice was given back"


def test_the_record_in_hand_is_rolled_back() -> None:
    _state, hand = loaded(batch(0, [b""] * 5))
    walk(hand, 3)
    hand.roll_back()
    assert hand.offsets()[AT].offset == 2


def test_a_batch_that_was_taken_is_rolled_back_as_a_whole() -> None:
    _state, hand = loaded(batch(0, [b""] * 5))
    hand.take(2)
    hand.take(2)
    hand.roll_back()
    assert hand.offsets()[AT].offset == 2


def test_a_seek_makes_the_slice_void() -> None:
    state, hand = loaded(batch(0, [b""] * 5))
    walk(hand, 2)
    state.seek(40)
    hand.abandon()
    assert state.position == 40
    assert not hand.next_slice(10)


class Odd(ConsumerInterceptor):
    def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        return [record for record in records if record.offset % 2]


def test_interceptors_may_drop_records_and_the_position_still_passes_them() -> None:
    state, hand = loaded(batch(0, [b""] * 6), interceptors=ConsumerInterceptors([Odd()]))
    assert walk(hand, 2) == [1, 3]
    assert hand.offsets()[AT].offset == 4
    assert walk(hand, 1) == [5]
    assert hand.offsets()[AT].offset == 6
    state, hand = loaded(batch(0, [b""] * 6), interceptors=ConsumerInterceptors([Odd()]))
    assert [each.offset for each in hand.take(3)] == [1]
    assert state.position == 3


def as_json(record: Record[Any, Any]) -> Record[Any, Any]:
    return record._replace(value=json.loads(record.value))


def test_a_record_that_cannot_be_deserialized_stops_before_it() -> None:
    state, hand = loaded(batch(0, [b"1", b"2", b"x", b"4"]), deserialize=as_json)
    assert [each.value for each in hand.take(10)] == [1, 2]
    for _ in range(2):
        with pytest.raises(DeserializationFailed, match=r"offset 2 of t-0"):
            hand.take(10)
    assert state.position == 2
    assert [each.value for each in loaded(batch(0, [b"x"]))[1].take(1)] == [b"x"]


def test_text_of_a_commit_is_kept_until_the_position_moves() -> None:
    state, hand = loaded(batch(0, [b""] * 3))
    state.continue_at(0, -1, "text")
    state.add(Chunk(AT, memoryview(bytearray(batch(0, [b""] * 3)))))
    assert hand.offsets()[AT].metadata == "text"
    hand.take(1)
    assert hand.offsets()[AT].metadata == ""


# --- positions and leaders ---


def test_a_new_leader_epoch_is_validated_when_the_position_has_one() -> None:
    state = PartitionState(AT)
    state.seek(10, 4)
    state.leader_changed(Leader(1, 4), can_validate=True)
    assert state.need.name == "VALIDATION"
    state.validated(4)
    state.leader_changed(Leader(1, 4), can_validate=True)
    assert state.need.name == "NOTHING"
    state.leader_changed(Leader(2, 5), can_validate=True)
    assert state.need.name == "VALIDATION"
    fresh = PartitionState(AT)
    fresh.seek(10)
    fresh.leader_changed(Leader(1, 4), can_validate=True)
    assert fresh.need.name == "NOTHING"
    assert fresh.leader_epoch == 4


# --- auto.offset.reset ---


def test_reset_strategies() -> None:
    assert parse_reset("earliest") == TO_EARLIEST
    assert parse_reset("none") is None
    duration = parse_reset("by_duration:P1DT1H30M2.5S")
    assert duration == ResetStrategy(0, 86_400_000 + 3_600_000 + 1_800_000 + 2_500)
    assert duration is not None
    assert duration.timestamp_at(100_000_000) == 100_000_000 - 91_802_500
    for wrong in ("first", "by_duration:", "by_duration:P", "by_duration:1h", "by_duration:-PT1H"):
        with pytest.raises(InvalidConfig, match=r"auto\.offset\.reset"):
            parse_reset(wrong)


# --- subscriptions ---


def known(*topics: str) -> Metadata:
    metadata = Metadata()
    metadata.wants_all = True
    rows = [
        MetadataResponseTopic(
            name=name, is_internal=name.startswith("__"), partitions=[MetadataResponsePartition()]
        )
        for name in topics
    ]
    metadata.update(MetadataResponse(topics=rows), 0, None)
    return metadata


def test_a_pattern_matches_whole_names_and_no_internal_topics() -> None:
    subscription = Subscription()
    subscription.subscribe_pattern(r"(__)?orders.*")
    metadata = known("orders", "orders-eu", "my-orders", "__orders")
    assert subscription.match(metadata)
    assert subscription.topics == {"orders", "orders-eu"}
    assert not subscription.match(metadata)
    assert subscription.match(known("orders"))
    assert Subscription(excludes_internal=False)._excludes_internal is False


def test_one_kind_of_subscription_at_a_time() -> None:
    subscription = Subscription()
    subscription.subscribe(["t"])
    with pytest.raises(IllegalState, match="unsubscribe"):
        subscription.assign([AT])
    subscription.clear()
    subscription.assign([AT])
    with pytest.raises(IllegalState, match="unsubscribe"):
        subscription.subscribe(["t"])
    subscription.clear()
    with pytest.raises(TypeError, match=r"\['t'\]"):
        subscription.subscribe("t")
    with pytest.raises(InvalidTopicException):
        subscription.subscribe(["a/b"])


# --- the decoder, with the broker's as its oracle ---

texts = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=8), texts), max_size=3)


@given(
    rows=st.lists(st.tuples(texts, texts, headers, st.integers(0, 2**42)), min_size=1, max_size=8),
    codec=st.sampled_from(Codec),
    base=st.integers(0, 2**40),
    skipped=st.integers(0, 8),
)
def test_the_decoder_agrees_with_the_oracle(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
    codec: Codec,
    base: int,
    skipped: int,
) -> None:
    builder = BatchBuilder(base_offset=base, codec=codec, leader_epoch=1)
    for key, value, pairs, timestamp in rows:
        builder.append(key, value, pairs, timestamp)
    built = read_batch(builder.build())
    expected = [
        Record("t", 0, each.offset, each.timestamp, each.key, each.value, each.headers, 0, 1)
        for each in iterate_records(built)
        if each.offset >= base + skipped
    ]
    assert decode_records(built, "t", 0, base + skipped) == expected


@given(damage=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_records_raise_as_the_oracle_does(damage: list[tuple[int, int]]) -> None:
    data = bytearray(batch(0, [b"a" * 20, None, b"c" * 40]))
    for at, byte in damage:
        data[61 + at % (len(data) - 61)] = byte
    built = read_batch(data)
    try:
        expected: object = [each.offset for each in iterate_records(built)]
    except InvalidRecord:
        expected = InvalidRecord
    try:
        found: object = [each.offset for each in decode_records(built, "t", 0, -(1 << 40))]
    except (InvalidRecord, UnicodeDecodeError):
        found = InvalidRecord
    assert found == expected


def test_fields_that_do_not_fill_their_record_are_refused() -> None:
    data = bytearray(batch(0, [bytes(20)]))
    at = data.index(b"k") + 1
    assert data[at] == 40, "zigzag of the value's length"
    data[at] -= 4
    with pytest.raises(InvalidRecord, match="do not fill"):
        decode_records(read_batch(data), "t", 0, 0)


def test_a_committed_record_is_not_rolled_back() -> None:
    state, hand = loaded(batch(0, [b"v"] * 5))
    walk(hand, 3)
    hand.committed(hand.offsets())
    hand.roll_back()
    assert state.position == 3


def test_a_committed_batch_is_not_rolled_back() -> None:
    state, hand = loaded(batch(0, [b"v"] * 5))
    hand.take(4)
    hand.committed({AT: CommittedOffset(2)})
    hand.roll_back()
    assert state.position == 2


def test_a_record_behind_the_commit_is_rolled_back() -> None:
    state, hand = loaded(batch(0, [b"v"] * 5))
    walk(hand, 2)
    hand.committed(hand.offsets())
    walk(hand, 2)
    hand.roll_back()
    assert state.position == 3


def test_a_record_that_is_read_again_after_a_seek_is_rolled_back() -> None:
    state, hand = loaded(batch(0, [b"v"] * 5))
    walk(hand, 5)
    hand.committed(hand.offsets())
    hand.abandon()
    state.seek(0)
    state.add(Chunk(AT, memoryview(bytearray(batch(0, [b"v"] * 5)))))
    walk(hand, 2)
    hand.roll_back()
    assert state.position == 1
