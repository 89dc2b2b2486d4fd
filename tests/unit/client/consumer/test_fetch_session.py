"""Incremental fetch sessions: what a request names, and when it begins again."""

from __future__ import annotations

from barnabas.client.consumer.core.fetch_session import FetchSession, Wanted
from barnabas.core.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch
from barnabas.core.ids import TopicPartition, Uuid

A, B, C = (TopicPartition("t", number) for number in range(3))
ID, OTHER_ID = Uuid(b"i" * 16), Uuid(b"j" * 16)


def at(offset: int, topic_id: Uuid = ID) -> Wanted:
    return Wanted(topic_id, offset, 0, 100)


def opened(*partitions: TopicPartition) -> FetchSession:
    session = FetchSession()
    session.answered(session.request({each: at(0) for each in partitions}), 7)
    return session


def test_a_full_request_opens_a_session_and_the_next_names_only_changes() -> None:
    session = FetchSession()
    first = session.request({A: at(0), B: at(0)})
    assert (first.session_id, first.epoch, list(first.named)) == (0, 0, [A, B])
    session.answered(first, 7)
    second = session.request({A: at(10), B: at(0)})
    assert (second.session_id, second.epoch) == (7, 1)
    assert second.named == {A: at(10)}
    assert second.forgotten == []


def test_partitions_that_are_no_longer_wanted_are_forgotten() -> None:
    request = opened(A, B).request({B: at(0), C: at(5)})
    assert request.named == {C: at(5)}
    assert request.forgotten == [(A, ID)]


def test_a_topic_created_again_is_forgotten_and_named() -> None:
    request = opened(A).request({A: at(0, OTHER_ID)})
    assert request.forgotten == [(A, ID)]
    assert request.named == {A: at(0, OTHER_ID)}


def test_a_broker_without_room_for_sessions_gets_full_requests() -> None:
    session = FetchSession()
    session.answered(session.request({A: at(0)}), 0)
    request = session.request({A: at(0)})
    assert request.is_full
    assert list(request.named) == [A]


def test_after_a_lost_connection_the_request_is_full_and_of_no_session() -> None:
    session = opened(A)
    session.request({A: at(0)})
    session.failed()
    request = session.request({A: at(0)})
    assert (request.session_id, request.epoch, list(request.named)) == (0, 0, [A])


def test_refusals_begin_again() -> None:
    session = opened(A)
    session.request({A: at(0)})
    session.refused(InvalidFetchSessionEpoch.code)
    request = session.request({A: at(0)})
    assert (request.session_id, request.epoch) == (7, 0), "the full request ends the old session"
    session.refused(FetchSessionIdNotFound.code)
    assert session.request({A: at(0)}).session_id == 0


def test_a_session_that_the_broker_closed_begins_again() -> None:
    session = opened(A)
    session.answered(session.request({A: at(0)}), 0)
    assert session.request({A: at(0)}).is_full


def test_epochs_wrap_to_one() -> None:
    session = opened(A)
    session._epoch = 0x7FFF_FFFF
    session.answered(session.request({A: at(0)}), 7)
    assert session.request({A: at(1)}).epoch == 1
