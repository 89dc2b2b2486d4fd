"""Memory equals a replay of `__transaction_state`; and the bytes of its records are Apache Kafka's."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.transaction.state.metadata import TransactionMetadata
from barnabas.coordinator.transaction.state.records import TransactionRecord, UnknownRecord, decode_record
from barnabas.coordinator.transaction.state.states import EMPTY, ONGOING, TransactionState
from barnabas.core.errors import NotEnoughReplicas, NotLeaderOrFollower
from barnabas.core.ids import TopicPartition
from barnabas.records.batch import NO_PRODUCER_EPOCH, RecordBatch
from barnabas.records.builder import build_batch
from barnabas.records.record import iterate_records
from tests.unit.coordinator.support import MemoryLog
from tests.unit.coordinator.transaction_support import V1, V2, Markers, Transactions

IDS = ("t", "u", "v")
PARTITIONS = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(3)]


def compacted(log: MemoryLog) -> MemoryLog:
    """The last record of each key, at its old offset."""
    last = {
        record.key: (record.offset, record.value)
        for batch in log.batches
        for record in iterate_records(RecordBatch(batch))
    }
    result = MemoryLog()
    for key, (offset, value) in sorted(last.items(), key=lambda item: item[1][0]):
        result.batches.append(build_batch([(key, value, (), 0)], base_offset=offset))
    result.log_end_offset = result.high_watermark = log.log_end_offset
    return result


def logged(known: dict[str, TransactionMetadata]) -> dict[str, TransactionMetadata]:
    """Without the one fact that is not in the log."""
    return {key: replace(metadata, last_producer_epoch=NO_PRODUCER_EPOCH) for key, metadata in known.items()}


class Story:
    """Producers that know only what they were answered; `step` does one random thing."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.t = Transactions(id_expiration_ms=300_000, remove_expired_interval_ms=30_000)
        self.producers: dict[str, list[tuple[int, int]]] = {name: [(1, 0)] for name in IDS}
        self.version = {name: self.random.choice((V1, V2)) for name in IDS}

    def step(self) -> None:
        what = self.random.choice(
            [self.init, self.add, self.add, self.end, self.end, self.trouble, self.wait]
        )
        what()

    def _who(self) -> tuple[str, tuple[int, int]]:
        name = self.random.choice(IDS)
        known = self.producers[name]
        return name, known[-1] if self.random.random() < 0.8 else self.random.choice(known)

    def init(self) -> None:
        name, producer = self._who()
        expected = producer if self.random.random() < 0.5 else (-1, -1)
        answer = self.t.ask_init(name, timeout_ms=self.random.choice((1_000, 60_000)), expected=expected)
        if answer.is_given and not answer.error_code:
            self.producers[name].append((answer.value.producer_id, answer.value.producer_epoch))

    def add(self) -> None:
        name, producer = self._who()
        wanted = self.random.sample(PARTITIONS, self.random.randint(1, 3))
        self.t.ask_add(producer, *wanted, transactional_id=name, version=self.version[name])

    def end(self) -> None:
        name, producer = self._who()
        commit = self.random.random() < 0.5
        answer = self.t.ask_end(producer, commit=commit, transactional_id=name, version=self.version[name])
        if self.version[name] == V2 and answer.is_given and not answer.error_code:
            self.producers[name].append((answer.value.producer_id, answer.value.producer_epoch))

    def trouble(self) -> None:
        self.t.markers.is_slow = self.random.random() < 0.3
        self.t.log.is_replicated = self.random.random() < 0.8
        self.t.log.error = NotEnoughReplicas("too few") if self.random.random() < 0.1 else None
        self.t.markers.errors = {
            each: NotLeaderOrFollower("not now") for each in PARTITIONS if self.random.random() < 0.1
        }
        self.t.markers.release()
        self.t.log.time_out() if self.random.random() < 0.2 else self.t.log.replicate()

    def wait(self) -> None:
        self.t.advance(self.random.choice((10, 1_000, 30_000, 200_000)))

    def settle(self) -> None:
        """All is well again, for long enough."""
        self.t.log.error, self.t.log.is_replicated = None, True
        self.t.markers.is_slow, self.t.markers.errors = False, {}
        self.t.markers.release()
        self.t.log.replicate()
        self.t.advance(120_000)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(1, 60))
def test_memory_equals_a_replay_of_the_log(seed: int, steps: int) -> None:
    story = Story(seed)
    for _ in range(steps):
        story.step()
    known = logged(story.t.known)
    quiet = Markers()
    quiet.is_slow = True
    assert logged(Transactions(story.t.log, quiet).known) == known
    assert logged(Transactions(compacted(story.t.log), quiet).known) == known


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(1, 60))
def test_nothing_hangs_and_every_transaction_ends_one_way_everywhere(seed: int, steps: int) -> None:
    story = Story(seed)
    for _ in range(steps):
        story.step()
    story.settle()
    assert not any(metadata.partitions or metadata.state is ONGOING for metadata in story.t.known.values()), (
        "an open transaction is aborted after its timeout"
    )
    decided: set[tuple[TopicPartition, int, int, bool]] = set()
    for batch in story.t.log.batches:
        for record in iterate_records(RecordBatch(batch)):
            assert record.key is not None
            metadata = decode_record(record.key, record.value).metadata
            if metadata is not None and metadata.state.name.startswith("PREPARE"):
                is_commit = metadata.state is TransactionState.PREPARE_COMMIT
                decided.update(
                    (each, metadata.producer_id, metadata.producer_epoch, is_commit)
                    for each in metadata.partitions
                )
    told = {
        (each, marker.producer_id, marker.producer_epoch, marker.is_commit)
        for each, marker in story.t.markers.written
    }
    assert told == decided


METADATA = TransactionMetadata(
    "tx",
    7,
    3,
    60_000,
    ONGOING,
    frozenset({TopicPartition("a", 1), TopicPartition("a", 0)}),
    start_timestamp_ms=1,
    last_update_timestamp_ms=2,
    previous_producer_id=6,
    next_producer_id=8,
    client_transaction_version=2,
)


def test_a_record_is_written_as_kafka_writes_it() -> None:
    key, value = TransactionRecord("tx", METADATA, is_flexible=False).encode()
    assert key.hex() == "0000" + "0002" + b"tx".hex()
    assert value is not None
    assert value.hex() == (
        "0000000000000000000700030000ea6001"
        "00000001000161000000020000000000000001"
        "00000000000000020000000000000001"
    )  # fmt: skip
    _, value = TransactionRecord("tx", METADATA).encode()
    assert value is not None
    assert value.hex() == (
        "0001000000000000000700030000ea6001"
        "02026103000000000000000100"
        "00000000000000020000000000000001"
        "03000800000000000000060108000000000000000802020002"
    )  # fmt: skip


@pytest.mark.parametrize("is_flexible", [True, False])
def test_a_record_is_read_back(is_flexible: bool) -> None:
    metadata = METADATA
    if not is_flexible:
        metadata = replace(
            METADATA, previous_producer_id=-1, next_producer_id=-1, client_transaction_version=0
        )
    key, value = TransactionRecord("tx", metadata, is_flexible=is_flexible).encode()
    assert decode_record(key, value).metadata == metadata
    assert decode_record(key, None).metadata is None
    empty = TransactionMetadata("tx", 7, 3, 60_000, EMPTY)
    key, value = TransactionRecord("tx", empty, is_flexible=is_flexible).encode()
    assert decode_record(key, value).metadata == empty


def test_a_record_of_the_future_is_left_alone() -> None:
    key, value = TransactionRecord("tx", METADATA).encode()
    assert value is not None
    with pytest.raises(UnknownRecord):
        decode_record(b"\0\1" + key[2:], value)
    with pytest.raises(UnknownRecord):
        decode_record(key, b"\0\2" + value[2:])
    log = MemoryLog()
    log.append(
        TopicPartition("x", 0), 0, build_batch([(b"\0\1" + key[2:], value, (), 0), (key, value, (), 0)])
    )
    assert set(Transactions(log).known) == {"tx"}
