"""Topics of a commit that do not exist, or may not be read, are refused one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.core.errors import TopicAuthorizationFailed, UnknownTopicId, UnknownTopicOrPartition
from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.core.steps import Sliced
from barnabas.handlers.shared.offset_topics import merge, sort_out
from barnabas.requests.context import RequestContext
from tests.support.slices import in_one_go

KNOWN, HIDDEN, OTHER = (Uuid.parse(f"AAAAAAAAAAAAAAAAAAAAA{end}") for end in "Qgw")
TOPICS = {"known": (KNOWN, 2), "hidden": (HIDDEN, 1)}

Topic = SimpleNamespace


def context() -> RequestContext:
    """Two topics, of which one may not be read."""
    by_name = {
        name: SimpleNamespace(name=name, partitions=[0] * count) for name, (_, count) in TOPICS.items()
    }
    by_id = {topic_id: by_name[name] for name, (topic_id, _) in TOPICS.items()}
    metadata = SimpleNamespace(topic=by_name.get, topic_by_id=by_id.get)
    broker = SimpleNamespace(metadata=metadata)
    return cast("RequestContext", SimpleNamespace(broker=broker, allows=lambda *asked: asked[-1] != "hidden"))


def topic(name: str, *partitions: int, topic_id: Uuid = ZERO_UUID) -> Topic:
    return Topic(
        name=name, topic_id=topic_id, partitions=[Topic(partition_index=each) for each in partitions]
    )


def asked_of(topic: Topic) -> tuple[str, tuple[int, ...]]:
    return topic.name, tuple(each.partition_index for each in topic.partitions)


def refuse(topic: Topic, partitions: list[Any], code: int) -> Sliced[Topic]:
    yield
    return Topic(name=topic.name, topic_id=topic.topic_id, partitions=partitions, code=code)


def sorted_out(*topics: Topic, by_id: bool = False, keeps_empty: bool = True) -> tuple[list[Any], list[Any]]:
    work = sort_out(topics, context(), refuse, by_id=by_id, keeps_empty=keeps_empty)
    valid, refused = in_one_go(work)
    return [asked_of(each) for each in valid], [(*asked_of(each), each.code) for each in refused]


def test_what_exists_and_may_be_read_is_committed_and_the_rest_refused() -> None:
    valid, refused = sorted_out(topic("known", 1, 2, -1, 0), topic("hidden", 0), topic("gone", 0))
    assert valid == [("known", (1, 0))]
    assert refused == [
        ("known", (2, -1), UnknownTopicOrPartition.code),
        ("hidden", (0,), TopicAuthorizationFailed.code),
        ("gone", (0,), UnknownTopicOrPartition.code),
    ]


def test_topics_by_their_id_get_their_name_and_an_unknown_id_names_nothing_to_hide() -> None:
    topics = [topic("", 0, topic_id=each) for each in (KNOWN, HIDDEN, OTHER)]
    valid, refused = sorted_out(*topics, by_id=True)
    assert valid == [("known", (0,))]
    assert refused == [("", (0,), TopicAuthorizationFailed.code), ("", (0,), UnknownTopicId.code)]


@pytest.mark.parametrize("keeps_empty", [True, False])
def test_a_topic_of_which_nothing_is_asked(keeps_empty: bool) -> None:
    valid, refused = sorted_out(topic("known"), topic("gone"), topic("known", 7), keeps_empty=keeps_empty)
    missing = ("known", (7,), UnknownTopicOrPartition.code)
    if keeps_empty:
        assert (valid, refused) == ([("known", ())], [("gone", (), UnknownTopicOrPartition.code), missing])
    else:
        assert (valid, refused) == ([], [missing])


def test_a_topic_of_which_some_was_refused_is_answered_once() -> None:
    answered = [topic("a", 0), topic("b", 0)]
    in_one_go(merge(answered, [topic("b", 1), topic("c", 2)], lambda each: each.name))
    assert [asked_of(each) for each in answered] == [("a", (0,)), ("b", (0, 1)), ("c", (2,))]
