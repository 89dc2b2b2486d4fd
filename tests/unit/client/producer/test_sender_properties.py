"""Random faults before the producer's machines: nothing is lost, doubled or reordered."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.producer_world import World

from barnabas.client.producer.core.sender import SenderOptions
from barnabas.core.errors import InvalidRecord, KafkaError, KafkaStorageError, NotEnoughReplicas
from barnabas.core.ids import TopicPartition
from barnabas.records.batch import RecordBatch
from barnabas.records.record import iterate_records

PARTITIONS = BROKERS = 2

WEIGHTS = {
    "send": 30,
    "run": 25,
    "process": 20,
    "respond": 17,
    "break": 2,
    "zombie": 2,
    "move": 2,
    "advance": 3,
    "fault": 1,
    "heal": 3,
}
FAULTS: tuple[type[KafkaError], ...] = (NotEnoughReplicas, KafkaStorageError)
BAD = b"bad "


def play(world: World, seed: int, *, events: int = 400, without: frozenset[str] = frozenset()) -> None:
    """A history of sends and faults, drawn from a seed."""
    chance = random.Random(seed)
    kinds = [kind for kind in WEIGHTS if kind not in without]
    drawn = chance.choices(kinds, [WEIGHTS[kind] for kind in kinds], k=events)
    marked: dict[int, type[KafkaError]] = {}
    world.refuse = partial(_refuse, marked)
    for number, kind in enumerate(drawn):
        broker, partition = chance.randrange(BROKERS), chance.randrange(PARTITIONS)
        value = (BAD if chance.random() < 0.02 else b"") + b"%d " % number + b"x" * chance.randrange(100)
        happen: dict[str, Callable[[], object]] = {
            "send": partial(world.send, value, partition),
            "run": world.run,
            "process": partial(world.process, broker),
            "respond": partial(world.respond, broker),
            "break": partial(world.break_connection, broker),
            "zombie": world.process_zombie,
            "move": partial(world.move_leader, partition, broker),
            "advance": partial(world.clock.advance, chance.choice([1, 100, 1_000, 5_000])),
            "fault": partial(marked.setdefault, partition, chance.choice(FAULTS)),
            "heal": marked.clear,
        }
        happen[kind]()
    marked.clear()


def _refuse(marked: dict[int, type[KafkaError]], at: TopicPartition, batch: RecordBatch) -> KafkaError | None:
    """A marked partition has a fault for a while. A bad record has one for ever."""
    if at.partition in marked:
        return marked[at.partition]("planned")
    if any((record.value or b"").startswith(BAD) for record in iterate_records(batch)):
        return InvalidRecord("bad")
    return None


def check(world: World) -> None:
    """Acknowledged records are in the log, once, at their offset and in the order of sending."""
    for number, log in enumerate(world.logs):
        mine = [(value, outcome) for value, at, outcome in world.outcomes() if at == number]
        acknowledged = [value for value, outcome in mine if not isinstance(outcome, Exception)]
        failed = {value for value, outcome in mine if isinstance(outcome, Exception)}
        assert len(log.values) == len(set(log.values)), "a record is there twice"
        assert [value for value in log.values if value not in failed] == acknowledged
        for value, outcome in mine:
            if not isinstance(outcome, Exception):
                assert log.values[outcome[0]] == value
    assert world.memory.available_bytes == world.memory.total_bytes
    assert not world.memory.waiting


NEVER_MS = 1 << 40


@pytest.mark.parametrize("delivery_timeout_ms", [20_000, NEVER_MS], ids=["batches expire", "nothing expires"])
@given(seed=st.integers(0, 1 << 32))
@example(seed=922)  # a late request fills the gap behind which a batch was sent under the next epoch
@example(seed=965)  # a batch before a refused one has been appended by a late request
@example(seed=1_100)
@settings(max_examples=25, deadline=None)
def test_an_idempotent_producer_keeps_every_promise(delivery_timeout_ms: int, seed: int) -> None:
    """Batches expire, and requests of lost connections are handled late: Java's doubles records then."""
    world = World(partitions=PARTITIONS, brokers=BROKERS, delivery_timeout_ms=delivery_timeout_ms)
    play(world, seed)
    world.settle()
    check(world)
    assert world.send(b"last", 0)
    world.settle()
    assert world.logs[0].values[-1] == b"last", "the producer goes on after every fault"


@given(st.integers(0, 1 << 32))
@settings(max_examples=15, deadline=None)
def test_one_request_in_flight_keeps_the_order_without_sequence_numbers(seed: int) -> None:
    options = SenderOptions(in_flight_max=1, keeps_order=True)
    world = World(partitions=PARTITIONS, brokers=BROKERS, is_idempotent=False, options=options)
    play(world, seed, without=frozenset({"break", "zombie"}))
    world.settle()
    check(world)
