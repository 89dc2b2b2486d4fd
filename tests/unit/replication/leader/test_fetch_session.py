import random
from collections.abc import Callable

import pytest

from barnabas.core.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.core.limits import FETCH_SESSION_CONNECTION_BYTES_MAX, FETCH_SESSION_PARTITION_BYTES
from barnabas.core.regions import FileRegion
from barnabas.core.reporting.metrics import Metrics
from barnabas.replication.leader.fetch_session import (
    EPOCH_MAX,
    NO_SESSION,
    PartitionSubscriptions,
    next_epoch,
)
from barnabas.replication.leader.fetch_session_cache import (
    IDLE_BEFORE_EVICTION_MS,
    FetchContext,
    FetchSessionCache,
)
from barnabas.replication.partition.fetching import PartitionFetch, PartitionRead
from barnabas.security.identity.principal import KafkaPrincipal
from tests.support.figures import figure
from tests.support.manual_time import ManualClock


class Sessions:
    """The cache under test, with short ways to talk to it."""

    def __init__(self, slots: int = 10) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.cache = FetchSessionCache(
            slots, self.clock, random.Random(1), self.metrics, PartitionSubscriptions()
        )

    def full(self, *asks: PartitionFetch, ids: bool = False) -> FetchContext:
        return self.cache.context(0, 0, asks, (), uses_topic_ids=ids)

    def next(
        self, session_id: int, epoch: int, *asks: PartitionFetch, forget: tuple[tuple[str, int], ...] = ()
    ) -> FetchContext:
        return self.cache.context(session_id, epoch, asks, forget, uses_topic_ids=False)


def ask(topic: str, partition: int = 0, offset: int = 0) -> PartitionFetch:
    return PartitionFetch(topic, ZERO_UUID, partition, offset, 1_000)


def empty(high_watermark: int = 0) -> PartitionRead:
    return PartitionRead(0, high_watermark, high_watermark, 0)


def data(high_watermark: int) -> PartitionRead:
    return PartitionRead(0, high_watermark, high_watermark, 0, records=FileRegion(None, 0, 5))  # type: ignore[arg-type]


def topics(context: FetchContext, reads: list[PartitionRead]) -> list[str]:
    return [each.topic_partition.topic for each, _ in context.to_send(context.fetches, reads)]


def test_a_full_fetch_opens_a_session_and_is_answered_in_full() -> None:
    sessions = Sessions()
    context = sessions.full(ask("a"), ask("b"))
    assert context.session_id > 0
    assert topics(context, [empty(), empty()]) == ["a", "b"]


def test_an_incremental_fetch_reads_what_the_session_remembers() -> None:
    sessions = Sessions()
    first = sessions.full(ask("a"), ask("b"))
    first.to_send(first.fetches, [empty(), empty()])
    again = sessions.next(first.session_id, 1)
    assert [each.topic_partition.topic for each in again.fetches] == ["a", "b"]
    assert topics(again, [empty(), empty()]) == []


def test_only_partitions_with_news_are_in_an_incremental_answer() -> None:
    sessions = Sessions()
    first = sessions.full(ask("a"), ask("b"), ask("c"))
    first.to_send(first.fetches, [empty(), empty(), empty()])
    second = sessions.next(first.session_id, 1)
    assert topics(second, [empty(), data(5), empty(3)]) == ["b", "c"]
    third = sessions.next(first.session_id, 2)
    assert {each.topic_partition.topic for each in third.fetches} == {"a", "b", "c"}


def test_a_partition_with_data_goes_to_the_end_of_the_line() -> None:
    sessions = Sessions()
    first = sessions.full(ask("a"), ask("b"))
    first.to_send(first.fetches, [data(1), empty()])
    assert [each.topic_partition.topic for each in sessions.next(first.session_id, 1).fetches] == ["b", "a"]


def test_an_error_is_repeated_until_it_is_gone_and_so_is_the_first_answer_after_it() -> None:
    sessions = Sessions()
    first = sessions.full(ask("a"))
    first.to_send(first.fetches, [empty(7)])
    failed = PartitionRead(error_code=3)
    assert topics(sessions.next(first.session_id, 1), [failed]) == ["a"]
    assert topics(sessions.next(first.session_id, 2), [failed]) == ["a"]
    assert topics(sessions.next(first.session_id, 3), [empty(7)]) == ["a"]
    assert topics(sessions.next(first.session_id, 4), [empty(7)]) == []


def test_the_answer_after_an_error_is_given_even_if_its_offsets_were_known() -> None:
    sessions = Sessions()
    first = sessions.full(ask("a"))
    first.to_send(first.fetches, [empty(7)])
    assert topics(sessions.next(first.session_id, 1), [PartitionRead(3, 7, 7, 0)]) == ["a"]
    assert topics(sessions.next(first.session_id, 2), [empty(7)]) == ["a"], "or it would stay an error"


def test_a_session_is_changed_by_what_an_incremental_fetch_adds_and_forgets() -> None:
    sessions = Sessions()
    first = sessions.full(ask("a"), ask("b"))
    changed = sessions.next(first.session_id, 1, ask("a", offset=9), ask("c"), forget=(("b", 0),))
    assert [(each.topic_partition.topic, each.fetch_offset) for each in changed.fetches] == [
        ("a", 9),
        ("c", 0),
    ]


def test_a_session_that_has_forgotten_everything_is_closed() -> None:
    sessions = Sessions()
    first = sessions.full(ask("a"))
    assert sessions.next(first.session_id, 1, forget=(("a", 0),)).session_id == 0
    assert len(sessions.cache) == 0


def test_a_wrong_epoch_and_an_unknown_session_are_errors() -> None:
    sessions = Sessions()
    first = sessions.full(ask("a"))
    with pytest.raises(InvalidFetchSessionEpoch):
        sessions.next(first.session_id, 2)
    with pytest.raises(FetchSessionIdNotFound):
        sessions.next(first.session_id + 1, 1)


def test_names_and_ids_do_not_mix_in_a_session() -> None:
    sessions = Sessions()
    by_id = PartitionFetch("a", Uuid(bytes(range(16))), 0, 0, 100)
    first = sessions.full(by_id, ids=True)
    with pytest.raises(FetchSessionTopicIdError):
        sessions.next(first.session_id, 1)
    with pytest.raises(InvalidFetchSessionEpoch):  # the epoch is looked at first, as in Kafka
        sessions.next(first.session_id, 7)


def test_the_final_epoch_closes_the_session_and_opens_none() -> None:
    sessions = Sessions()
    first = sessions.full(ask("a"))
    last = sessions.cache.context(first.session_id, -1, [ask("a")], (), uses_topic_ids=False)
    assert last.session_id == 0
    assert len(sessions.cache) == 0


def test_when_all_slots_are_taken_only_a_larger_session_gets_in() -> None:
    sessions = Sessions(slots=2)
    sessions.full(ask("a"))
    large = sessions.full(ask("a"), ask("b"))
    assert sessions.full(ask("x")).session_id == 0
    assert figure(sessions.metrics, "kafka_fetch_session_evictions_total") == 0
    assert sessions.full(ask("x"), ask("y")).session_id > 0
    assert figure(sessions.metrics, "kafka_fetch_sessions") == 2
    assert figure(sessions.metrics, "kafka_fetch_session_evictions_total") == 1
    sessions.next(large.session_id, 1)


def test_a_follower_gets_in_and_no_consumer_takes_its_place() -> None:
    clock = ManualClock()
    cache = FetchSessionCache(1, clock, random.Random(1), Metrics(), PartitionSubscriptions())

    def open_session(*asks: PartitionFetch, is_from_follower: bool) -> int:
        context = cache.context(0, 0, asks, (), uses_topic_ids=False, is_from_follower=is_from_follower)
        return context.session_id

    assert open_session(ask("a"), ask("b"), is_from_follower=False) > 0
    follower = open_session(ask("a"), is_from_follower=True)
    assert follower > 0, "however large the consumer's is"
    assert open_session(ask("a"), ask("b"), ask("c"), is_from_follower=False) == 0
    assert open_session(ask("a"), is_from_follower=True) == 0
    assert open_session(ask("a"), ask("b"), is_from_follower=True) not in (0, follower), "a larger one"
    clock.advance(IDLE_BEFORE_EVICTION_MS + 1)
    assert open_session(ask("a"), is_from_follower=False) > 0, "nobody uses the follower's any more"


def test_an_idle_session_makes_room_for_any_other() -> None:
    sessions = Sessions(slots=1)
    idle = sessions.full(ask("a"), ask("b"))
    sessions.clock.advance(IDLE_BEFORE_EVICTION_MS + 1)
    assert sessions.full(ask("x")).session_id > 0
    with pytest.raises(FetchSessionIdNotFound):
        sessions.next(idle.session_id, 1)


def test_epochs_wrap_around_to_one() -> None:
    assert next_epoch(EPOCH_MAX) == 1
    assert next_epoch(1) == 2


def test_a_waiting_fetch_keeps_its_offsets_when_the_next_request_moves_on() -> None:
    sessions = Sessions()
    first = sessions.full(ask("a", offset=3))
    waiting = first.fetches
    sessions.next(first.session_id, 1, ask("a", offset=9))
    assert waiting[0].fetch_offset == 3


class Reader:
    """A connection that fetches."""

    def __init__(self, connection_id: str = "1", name: str = "alice") -> None:
        self.connection_id = connection_id
        self.principal = KafkaPrincipal("User", name)
        self.actions: list[Callable[[], None]] = []

    def when_closed(self, action: Callable[[], None]) -> None:
        self.actions.append(action)

    def close(self) -> None:
        for action in self.actions:
            action()


def open_for(sessions: Sessions, reader: Reader, *asks: PartitionFetch, may_keep: bool = True) -> int:
    context = sessions.cache.context(
        NO_SESSION, 0, asks, (), uses_topic_ids=False, owner=reader, may_keep=may_keep
    )
    return context.session_id


@pytest.mark.parametrize("epoch", [1, 2, 7])
def test_a_session_of_another_connection_does_not_exist(epoch: int) -> None:
    """The same error, whether the epoch is right or wrong: nothing tells that the session is there."""
    sessions, alice, mallory = Sessions(), Reader(), Reader("2")
    session = open_for(sessions, alice, ask("a"))
    with pytest.raises(FetchSessionIdNotFound):
        sessions.cache.context(session, epoch, (), (), uses_topic_ids=False, owner=mallory)


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_session_of_another_connection_cannot_be_closed(epoch: int) -> None:
    sessions, alice, mallory = Sessions(), Reader(), Reader("2")
    session = open_for(sessions, alice, ask("a"))
    sessions.cache.context(session, epoch, (), (), uses_topic_ids=False, owner=mallory)
    assert sessions.cache.context(session, 1, (), (), uses_topic_ids=False, owner=alice).session_id == session


def test_sessions_go_with_their_connection() -> None:
    sessions, alice, bob = Sessions(), Reader(), Reader("2")
    ids = [open_for(sessions, alice, ask("a")), open_for(sessions, alice, ask("a"))]
    kept = open_for(sessions, bob, ask("a"))
    assert len(alice.actions) == 1, "a connection that opens many sessions is asked once"
    alice.close()
    assert len(sessions.cache) == 1
    assert sessions.cache.context(kept, 1, (), (), uses_topic_ids=False, owner=bob).session_id == kept
    assert ids[0] != ids[1]


def test_partitions_without_a_right_are_not_kept() -> None:
    sessions, mallory = Sessions(), Reader()
    assert open_for(sessions, mallory, ask("a"), may_keep=False) == NO_SESSION
    session = open_for(sessions, mallory, ask("public"))
    with pytest.raises(FetchSessionIdNotFound):
        sessions.cache.context(
            session, 1, (ask("a"),), (), uses_topic_ids=False, owner=mallory, may_keep=False
        )
    assert len(sessions.cache) == 0


def test_the_partitions_of_a_connection_are_bounded() -> None:
    room = FETCH_SESSION_CONNECTION_BYTES_MAX // FETCH_SESSION_PARTITION_BYTES
    sessions, reader = Sessions(), Reader()
    many = [ask("a", partition) for partition in range(room // 2)]
    first = open_for(sessions, reader, *many)
    assert first != NO_SESSION
    assert open_for(sessions, reader, *many, ask("b")) == NO_SESSION, "it goes on without a session"
    assert open_for(sessions, Reader("2", "bob"), *many) != NO_SESSION
    with pytest.raises(FetchSessionIdNotFound):
        sessions.cache.context(
            first, 1, [ask("b", each) for each in range(room)], (), uses_topic_ids=False, owner=reader
        )
    assert open_for(sessions, reader, *many, ask("b")) != NO_SESSION, "what was closed is given back"
