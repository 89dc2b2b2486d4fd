"""The synchronous consumer: iteration in batches, and commits of what the loop body received."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from barnabas import client
from barnabas.client import IllegalState, Record, TopicPartition, sync
from barnabas.client.sync import Consumer, Producer
from barnabas.client.sync.loop_thread import SHARED

_numbers = itertools.count()


@pytest.fixture
def topic(running_broker: str) -> str:
    name = f"sync-{next(_numbers)}"
    with Producer(running_broker) as producer:
        producer.send_many(name, [b"%d" % number for number in range(20)])
        producer.flush()
    return name


def consumer_of(bootstrap: str, topic: str) -> Consumer:
    return Consumer(bootstrap, group=f"group-{topic}", topics=[topic], auto_offset_reset="earliest")


def values(records: list[Record[Any, Any]]) -> list[int]:
    return sorted(int(record.value) for record in records)


def test_a_loop_reads_and_the_next_consumer_continues(running_broker: str, topic: str) -> None:
    first: list[Record[Any, Any]] = []
    with consumer_of(running_broker, topic) as consumer:
        for record in consumer:
            first.append(record)
            if len(first) == 7:
                break
        assert sum(each.offset for each in consumer.commit().values()) == 7
    with consumer_of(running_broker, topic) as consumer:
        rest = list(itertools.islice(consumer, 13))
        assert sum(each.offset for each in consumer.positions().values()) == 20
    assert values(first + rest) == list(range(20)), "nothing is lost, nothing comes twice"


def test_a_record_whose_loop_body_failed_comes_again(running_broker: str, topic: str) -> None:
    seen: list[Record[Any, Any]] = []

    def fail() -> None:
        with consumer_of(running_broker, topic) as consumer:
            for record in consumer:
                seen.append(record)
                if len(seen) == 5:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with consumer_of(running_broker, topic) as consumer:
        rest = list(itertools.islice(consumer, 16))
    assert values(seen[:4] + rest) == list(range(20))


def test_processing_in_threads(running_broker: str, topic: str) -> None:
    stop = threading.Event()
    seen: list[int] = []
    threads: set[str] = set()

    def handle(record: Record[Any, Any]) -> None:
        threads.add(threading.current_thread().name)
        seen.append(int(record.value))
        if len(seen) == 20:
            stop.set()

    with consumer_of(running_broker, topic) as consumer:
        consumer.process(handle, stop=stop)
    assert sorted(seen) == list(range(20))
    assert all(name.startswith("barnabas-process") for name in threads)


def test_offsets_and_seeks(running_broker: str, topic: str) -> None:
    with Consumer(running_broker) as consumer:
        partitions = consumer.partitions_for(topic)
        assert sum(consumer.end_offsets(partitions).values()) == 20
        (at, *_) = [each for each, end in consumer.end_offsets(partitions).items() if end]
        consumer.assign([at])
        consumer.seek(at, 0)
        assert consumer.poll(timeout_ms=10_000, max_records=1)[0].offset == 0
        assert consumer.position(at) == 1
        assert topic in consumer.topics()
        assert isinstance(at, TopicPartition)
        consumer.seek(at, 0)
        assert consumer.get_one().offset == 0
        assert consumer.lag(at) == consumer.end_offsets([at])[at] - 1, "the rest of the batch is not read"
        consumer.pause(at)
        assert consumer.paused == {at}


def test_arrow_batches_are_taken_and_committed(running_broker: str, topic: str) -> None:
    pytest.importorskip("pyarrow")
    with consumer_of(running_broker, topic) as consumer:
        first = next(iter(consumer))
        found = [int(first.value)]
        for batch in consumer.arrow(columns=["value"]):
            found += map(int, batch.column("value").to_pylist())
            if len(found) == 20:
                break
    assert sorted(found) == list(range(20))
    with consumer_of(running_broker, topic) as consumer:
        committed = consumer.committed(consumer.partitions_for(topic))
        assert sum(each.offset for each in committed.values() if each is not None) == 20
        assert list(consumer.arrow(timeout_ms=10)) == []


@pytest.mark.parametrize(
    ("kind", "without"),
    [
        (client.Consumer, {"clock", "is_positioned", "start", "take_batches"}),
        (client.Producer, {"start"}),
    ],
)
def test_every_call_has_a_synchronous_face(kind: type, without: set[str]) -> None:
    names = {name for name in dir(kind) if not name.startswith("_")}
    assert names - set(dir(getattr(sync, kind.__name__))) == without


def test_a_forked_child_cannot_use_the_consumer_of_its_parent(
    running_broker: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections and timers are on the parent's loop."""
    with consumer_of(running_broker, topic) as consumer:
        with monkeypatch.context() as patched:
            patched.setattr(SHARED, "generation", SHARED.generation + 1)  # as after a fork
            for call in (consumer.poll, consumer.commit, consumer.topics, lambda: next(iter(consumer))):
                with pytest.raises(IllegalState, match="after a fork"):
                    call()
        assert len(consumer.poll(timeout_ms=5_000)) > 0
