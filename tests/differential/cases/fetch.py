"""Fetch (1): offsets, sizes, epochs, isolation, sessions."""

from __future__ import annotations

from typing import Any

from barnabas.core.ids import ZERO_UUID
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from tests.differential.case import Case, case
from tests.differential.world import NOWHERE, Topic, World
from tests.support.wire import batch

BIG = 1 << 20


def asked(partition: int = 0, offset: int = 0, **fields: Any) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, **{"partition_max_bytes": BIG, **fields})


def fetch(topic: Topic, *partitions: FetchPartition, **fields: object) -> FetchRequest:
    return fetch_topics((topic, partitions or (asked(),)), **fields)


def fetch_topics(*topics: tuple[Topic, tuple[FetchPartition, ...]], **fields: object) -> FetchRequest:
    rows = [FetchTopic(topic=topic.name, topic_id=topic.id, partitions=list(asks)) for topic, asks in topics]
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 0, "max_bytes": BIG, "topics": rows, **fields})  # type: ignore[arg-type]


@case(ApiKey.FETCH)
def from_the_beginning(world: World) -> Case:
    yield fetch(world.shared("letters"), asked(0), asked(1), asked(2))


@case(ApiKey.FETCH)
def every_offset(world: World) -> Case:
    for offset in range(11):
        yield fetch(world.shared("letters"), asked(0, offset))


@case(ApiKey.FETCH)
def offsets_out_of_range(world: World) -> Case:
    for offset in (-1, -2, 11, 1_000, 2**63 - 1, -(2**63)):
        yield fetch(world.shared("letters"), asked(0, offset))
    yield fetch(world.shared("empty"), asked(0, 0))
    yield fetch(world.shared("empty"), asked(0, 1))


@case(ApiKey.FETCH)
def a_log_whose_start_moved(world: World) -> Case:
    for offset in (0, 3, 4, 5, 10, 11):
        yield fetch(world.shared("trimmed"), asked(0, offset))


@case(ApiKey.FETCH)
def compressed_batches(world: World) -> Case:
    yield fetch(world.shared("packed"))
    yield fetch(world.shared("packed"), asked(0, 5))


@case(ApiKey.FETCH)
def log_append_time(world: World) -> Case:
    yield fetch(world.shared("stamped"))


@case(ApiKey.FETCH)
def partition_max_bytes(world: World) -> Case:
    for size in (0, 1, 100, 1_018, 1_019, 2_500, 2**31 - 1, -1):
        yield fetch(world.shared("many"), asked(0, 0, partition_max_bytes=size))


@case(ApiKey.FETCH, "3+")
def max_bytes(world: World) -> Case:
    for size in (0, 1, 100, 5_000, 2**31 - 1, -1):
        yield fetch(world.shared("many"), max_bytes=size)


@case(ApiKey.FETCH, "3+")
def max_bytes_is_shared_by_partitions(world: World) -> Case:
    letters, many = world.shared("letters"), world.shared("many")
    for size in (0, 1, 80, 200, 3_000):
        yield fetch_topics((many, (asked(0),)), (letters, (asked(0), asked(1))), max_bytes=size)
        yield fetch_topics((letters, (asked(2), asked(1), asked(0))), (many, (asked(0),)), max_bytes=size)


@case(ApiKey.FETCH)
def min_bytes_that_never_come(world: World) -> Case:
    yield fetch(world.shared("letters"), asked(0, 10), max_wait_ms=20, min_bytes=1)
    yield fetch(world.shared("letters"), asked(0, 0), max_wait_ms=20, min_bytes=2**31 - 1)
    yield fetch(world.shared("letters"), asked(0, 10), max_wait_ms=-1, min_bytes=1)
    yield fetch(world.shared("letters"), asked(0, 0), max_wait_ms=0, min_bytes=-1)


@case(ApiKey.FETCH)
def an_error_is_not_waited_for(world: World) -> Case:
    yield fetch(NOWHERE, max_wait_ms=60_000, min_bytes=1)
    yield fetch(world.shared("letters"), asked(9), max_wait_ms=60_000, min_bytes=1)
    yield fetch(world.shared("letters"), asked(0, 99), max_wait_ms=60_000, min_bytes=1)


@case(ApiKey.FETCH)
def unknown_topics_and_partitions(world: World) -> Case:
    yield fetch(NOWHERE)
    yield fetch(world.shared("letters"), asked(3), asked(-1), asked(0))
    yield fetch_topics((NOWHERE, (asked(0),)), (world.shared("letters"), (asked(1),)))


@case(ApiKey.FETCH, "13+")
def a_zero_topic_id(world: World) -> Case:
    yield fetch(Topic("", ZERO_UUID))
    yield fetch_topics((Topic("", ZERO_UUID), (asked(0),)), (world.shared("letters"), (asked(1),)))


@case(ApiKey.FETCH, "0-12")
def names_that_cannot_be(world: World) -> Case:
    for name in ("", ".", "a/b", "x" * 250):
        yield fetch(Topic(name))


@case(ApiKey.FETCH)
def nothing(world: World) -> Case:
    yield fetch_topics(max_wait_ms=10, min_bytes=1)
    yield fetch_topics((world.shared("letters"), ()))


@case(ApiKey.FETCH)
def a_partition_twice(world: World) -> Case:
    letters = world.shared("letters")
    yield fetch(letters, asked(0, 0), asked(0, 6))
    yield fetch_topics((letters, (asked(0),)), (letters, (asked(1),)))


@case(ApiKey.FETCH, "9+")
def leader_epochs(world: World) -> Case:
    letters = world.shared("letters")
    for epoch in (-1, 0, 1, 5, -2):
        yield fetch(letters, asked(0, 0, current_leader_epoch=epoch))


@case(ApiKey.FETCH, "12+")
def last_fetched_epochs(world: World) -> Case:
    letters = world.shared("letters")
    for epoch, offset in ((0, 10), (0, 4), (1, 10), (0, 11), (-1, 5), (7, 3)):
        yield fetch(letters, asked(0, offset, last_fetched_epoch=epoch))


@case(ApiKey.FETCH, "4+")
def isolation_levels(world: World) -> Case:
    for level in (0, 1, 2, -1):
        yield fetch(world.shared("letters"), isolation_level=level)
        yield fetch(world.shared("letters"), asked(0, 99), isolation_level=level)


@case(ApiKey.FETCH, "5+")
def the_log_start_of_a_consumer_is_ignored(world: World) -> Case:
    yield fetch(world.shared("letters"), asked(0, 3, log_start_offset=2))


@case(ApiKey.FETCH, "11+")
def a_rack(world: World) -> Case:
    yield fetch(world.shared("letters"), rack_id="rack-1")


@case(ApiKey.FETCH, "0-14")
def replicas_that_are_none(world: World) -> Case:
    letters = world.shared("letters")
    for replica in (1, 2, -2):
        yield fetch(letters, asked(0, 0), replica_id=replica)


@case(ApiKey.FETCH, "15+")
def replica_states(world: World) -> Case:
    letters = world.shared("letters")
    for replica in (1, 2, -2):
        yield fetch(letters, asked(0, 0), replica_state=ReplicaState(replica_id=replica, replica_epoch=-1))


@case(ApiKey.FETCH, "12+")
def cluster_ids(world: World) -> Case:
    yield fetch(world.shared("letters"), cluster_id="not-this-one")


@case(ApiKey.FETCH)
def new_records_wake_a_waiting_fetch(world: World) -> Case:
    topic = world.topic()
    world.append(topic, batch([b"new"]))
    yield fetch(topic, max_wait_ms=10_000, min_bytes=1)


def _session(answer: object) -> int:
    return answer.session_id if isinstance(answer, FetchResponse) else 0


@case(ApiKey.FETCH, "7+")
def a_session_reports_only_changes(world: World) -> Case:
    topic, letters = world.topic(partitions=2), world.shared("letters")
    opened = yield fetch_topics((topic, (asked(0), asked(1))), (letters, (asked(0, 10),)), session_epoch=0)
    session_id = _session(opened)
    yield fetch_topics(session_id=session_id, session_epoch=1)
    world.append(topic, batch([b"new"]), 1)
    yield fetch_topics(session_id=session_id, session_epoch=2)
    yield fetch_topics((topic, (asked(1, 1),)), session_id=session_id, session_epoch=3)
    yield fetch_topics(session_id=session_id, session_epoch=4)


@case(ApiKey.FETCH, "7+")
def a_session_forgets_partitions(world: World) -> Case:
    letters = world.shared("letters")
    opened = yield fetch(letters, asked(0), asked(1), session_epoch=0)
    forgotten = ForgottenTopic(topic=letters.name, topic_id=letters.id, partitions=[0])
    yield fetch_topics(session_id=_session(opened), session_epoch=1, forgotten_topics_data=[forgotten])
    yield fetch(letters, asked(2), session_id=_session(opened), session_epoch=2)
    everything = ForgottenTopic(topic=letters.name, topic_id=letters.id, partitions=[1, 2])
    yield fetch_topics(session_id=_session(opened), session_epoch=3, forgotten_topics_data=[everything])
    unknown = ForgottenTopic(topic=NOWHERE.name, topic_id=NOWHERE.id, partitions=[1, 2])
    yield fetch_topics(session_id=_session(opened), session_epoch=4, forgotten_topics_data=[unknown])


@case(ApiKey.FETCH, "7+")
def a_session_with_a_wrong_epoch(world: World) -> Case:
    letters = world.shared("letters")
    opened = yield fetch(letters, session_epoch=0)
    yield fetch_topics(session_id=_session(opened), session_epoch=7)
    yield fetch_topics(session_id=_session(opened), session_epoch=1)
    yield fetch_topics(session_id=_session(opened), session_epoch=1)


@case(ApiKey.FETCH, "7+")
def a_session_that_does_not_exist(world: World) -> Case:
    letters = world.shared("letters")
    yield fetch(letters, session_id=12_345, session_epoch=1)
    yield fetch(letters, session_id=12_345, session_epoch=0)
    yield fetch(letters, session_id=12_345, session_epoch=-1)
    yield fetch(letters, session_id=0, session_epoch=5)
    yield fetch(letters, session_id=0, session_epoch=-1)
    yield fetch(letters, session_id=0, session_epoch=-2)


@case(ApiKey.FETCH, "7+")
def a_session_is_closed_and_replaced(world: World) -> Case:
    letters = world.shared("letters")
    opened = yield fetch(letters, session_epoch=0)
    replaced = yield fetch(letters, asked(1), session_id=_session(opened), session_epoch=0)
    yield fetch_topics(session_id=_session(opened), session_epoch=1)
    yield fetch_topics(session_id=_session(replaced), session_epoch=1)
    yield fetch(letters, session_id=_session(replaced), session_epoch=-1)
    yield fetch_topics(session_id=_session(replaced), session_epoch=2)


@case(ApiKey.FETCH, "7+")
def an_empty_session(world: World) -> Case:
    opened = yield fetch_topics(session_epoch=0)
    yield fetch_topics(session_id=_session(opened), session_epoch=1)


@case(ApiKey.FETCH, "7+")
def errors_in_a_session(world: World) -> Case:
    letters = world.shared("letters")
    opened = yield fetch_topics(
        (letters, (asked(9), asked(0, 99), asked(2))), (NOWHERE, (asked(0),)), session_epoch=0
    )
    yield fetch_topics(session_id=_session(opened), session_epoch=1)
    yield fetch(letters, asked(0, 10), session_id=_session(opened), session_epoch=2)
    yield fetch_topics(session_id=_session(opened), session_epoch=3)
