"""Follower's fetch session: everything once, then only what changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.core.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchRequest
from barnabas.replication.follower.fetch_session import FollowerSession
from barnabas.replication.follower.followed_partition import FollowedPartition
from barnabas.replication.partition.partition import Partition
from tests.unit.replication.support import ONE, TOPIC_ID, ZERO, Replicas


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return Replicas(str(tmp_path))


def followed(replicas: Replicas, key: TopicPartition = ZERO, topic_id: Uuid = TOPIC_ID) -> FollowedPartition:
    return FollowedPartition(replicas.local.get_or_create(key, topic_id))


def request_of(session: FollowerSession) -> FetchRequest:
    request = FetchRequest()
    session.fill(request, 1_000)
    return request


def partitions_of(request: FetchRequest) -> list[int]:
    return [each.partition for topic in request.topics for each in topic.partitions]


def test_a_session_opens_in_full_and_goes_on_with_changes(replicas: Replicas) -> None:
    session = FollowerSession()
    zero, one = followed(replicas), followed(replicas, ONE)
    session.want(zero)
    session.want(one)
    first = request_of(session)
    assert (first.session_id, first.session_epoch, partitions_of(first)) == (0, 0, [0, 1])
    session.answered(77)
    second = request_of(session)
    assert (second.session_id, second.session_epoch, partitions_of(second)) == (77, 1, [])
    session.answered(77)
    session.want(one)
    assert partitions_of(request_of(session)) == [1]


def test_a_busy_partition_goes_to_the_end_where_the_leader_keeps_no_session(replicas: Replicas) -> None:
    """A leader fills an answer in the order of the request, up to `replica.fetch.response.max.bytes`."""
    session = FollowerSession()
    other = TopicPartition("other", 0)
    busy = followed(replicas)
    for each in (busy, followed(replicas, ONE), followed(replicas, other, Uuid(bytes(16)[:-1] + b"1"))):
        session.want(each)
    request_of(session)
    session.answered(0)
    session.want(busy)
    order = [(each.topic, part.partition) for each in request_of(session).topics for part in each.partitions]
    assert order == [ONE, other, ZERO]


def test_a_partition_that_is_left_is_forgotten_once(replicas: Replicas) -> None:
    session = FollowerSession()
    session.want(followed(replicas))
    session.want(followed(replicas, ONE))
    request_of(session)
    session.answered(77)
    session.leave(ONE)
    session.leave(ONE)
    request = request_of(session)
    assert [(each.topic_id, each.partitions) for each in request.forgotten_topics_data] == [(TOPIC_ID, [1])]
    session.answered(77)
    assert request_of(session).forgotten_topics_data == []


def test_a_partition_that_comes_back_at_once_is_not_forgotten(replicas: Replicas) -> None:
    session = FollowerSession()
    zero = followed(replicas)
    session.want(zero)
    request_of(session)
    session.answered(77)
    session.leave(ZERO)
    session.want(zero)
    request = request_of(session)
    assert (partitions_of(request), request.forgotten_topics_data) == ([0], [])


def test_a_topic_made_again_is_another_topic(replicas: Replicas) -> None:
    session = FollowerSession()
    session.want(followed(replicas))
    request_of(session)
    session.answered(77)
    replicas.local.stop(ZERO, delete=True)
    new_id = Uuid(bytes(15) + b"\1")
    session.want(followed(replicas, topic_id=new_id))
    request = request_of(session)
    assert [topic.topic_id for topic in request.topics] == [new_id]
    assert [topic.topic_id for topic in request.forgotten_topics_data] == [TOPIC_ID]


def test_an_answer_to_an_earlier_question_is_dropped(replicas: Replicas) -> None:
    session = FollowerSession()
    zero = followed(replicas)
    session.want(zero)
    request_of(session)
    answer = FetchableTopicResponse(topic_id=TOPIC_ID)
    assert session.asked(answer, 0) is zero
    session.want(followed(replicas))
    assert session.asked(answer, 0) is None, "the position has changed while the fetch was on its way"
    session.leave(ZERO)
    assert session.asked(answer, 0) is None


def test_a_leader_without_room_for_a_session_is_told_everything_again(replicas: Replicas) -> None:
    session = FollowerSession()
    session.want(followed(replicas))
    request_of(session)
    session.answered(0)
    again = request_of(session)
    assert (again.session_epoch, partitions_of(again)) == (0, [0])


def test_one_topic_without_an_id_makes_all_go_by_name(replicas: Replicas) -> None:
    session = FollowerSession()
    session.want(followed(replicas))
    assert session.settle_naming()
    request_of(session)
    session.answered(77)
    nameless = followed(replicas, TopicPartition("old", 0), ZERO_UUID)
    session.want(nameless)
    assert not session.settle_naming()
    request = request_of(session)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert sorted(topic.topic for topic in request.topics) == ["old", "topic"]
    assert session.asked(FetchableTopicResponse(topic="old"), 0) is nameless
    session.leave(nameless.key)
    assert session.settle_naming()


def test_the_lag_is_what_the_leader_has_committed_and_we_have_not(replicas: Replicas) -> None:
    partition: Partition = replicas.lead(replicas=(replicas.broker_id,))
    replicas.append(partition)
    state = FollowedPartition(partition)
    state.high_watermark = 5
    assert state.lag == 4
    state.high_watermark = 0
    assert state.lag == 0
