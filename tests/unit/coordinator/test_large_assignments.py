"""Assignment of a large group in turns of its own: no request waits, and the result is the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.coordinator.group.consumer import assignment_runs
from barnabas.coordinator.group.consumer.assignors import (
    ASSIGNORS,
    Assigned,
    AssignorMember,
    assign_uniform,
)
from barnabas.coordinator.group.state.consumer_group import ConsumerGroup
from barnabas.core.errors import NotEnoughReplicas
from barnabas.core.ids import Uuid
from barnabas.core.limits import TURN_MS_MAX
from barnabas.core.steps import run_to_end
from tests.unit.coordinator.support import Groups


@pytest.fixture(autouse=True)
def every_group_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment_runs, "ASSIGNMENT_ELEMENTS_PER_TURN_MAX", 0)


def with_topic(partitions: int = 4, **settings: Any) -> tuple[Groups, Uuid]:
    groups = Groups(**settings)
    return groups, groups.topics.put("t", partitions)


def group_of(groups: Groups) -> ConsumerGroup:
    found = groups.shard.registry.find_consumer("g")
    assert found is not None
    return found


def test_members_keep_what_they_have_until_the_target_is_computed() -> None:
    groups, topic = with_topic()
    first = groups.beat("a", 0, topics=["t"])
    assert first.assignment is not None
    assert first.member_epoch == 1
    second = groups.beat("b", 0, topics=["t"])
    assert (second.error_code, second.member_epoch) == (0, 1)
    assert second.assignment is not None
    assert second.assignment.topic_partitions == []
    assert group_of(groups).state.value == "Assigning"
    groups.advance(1)
    assert group_of(groups).assignment_epoch == 2
    assert groups.settle() == {"a": {topic: [0, 1]}, "b": {topic: [2, 3]}}
    assert Groups(log=groups.log, topics=groups.topics).settle() == groups.settle()


class SlowAssignor:
    """Takes a whole turn for each step."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.steps = 0

    def __call__(self, members: Any, counts: Any) -> Assigned:
        steps = assign_uniform(members, counts)
        for _ in range(5):
            self.steps += 1
            self.groups.clock.advance(TURN_MS_MAX + 1)
            yield
        return (yield from steps)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> tuple[Groups, SlowAssignor]:
    groups, _ = with_topic()
    groups.beat("a", 0, topics=["t"])
    assignor = SlowAssignor(groups)
    monkeypatch.setitem(ASSIGNORS, "uniform", assignor)
    return groups, assignor


def test_other_requests_come_between_the_turns(slow: tuple[Groups, SlowAssignor]) -> None:
    groups, assignor = slow
    groups.beat("b", 0, topics=["t"])
    assert assignor.steps == 0
    groups.timer.advance()
    assert assignor.steps == 1
    assert groups.commit(7, group="other") == 0
    groups.clock.advance(1)
    groups.timer.advance()
    assert assignor.steps == 2
    groups.advance(50)
    assert group_of(groups).assignment_epoch == 2


def test_a_group_that_changes_meanwhile_gets_there_by_and_by(slow: tuple[Groups, SlowAssignor]) -> None:
    groups, _ = slow
    groups.beat("b", 0, topics=["t"])
    groups.timer.advance()
    groups.beat("c", 0, topics=["t"])
    assert groups.beat("b", -1).error_code == 0
    groups.advance(50)
    group = group_of(groups)
    assert (group.assignment_epoch, group.group_epoch) == (2, 4)
    assert set(group.target) == {"a", "c"}
    groups.beat("a", 1)
    groups.advance(50)
    assert group.assignment_epoch == 4
    assert sorted(len(each) for topics in groups.settle().values() for each in topics.values()) == [2, 2]


def test_a_target_for_a_group_that_is_another_by_now_is_dropped(slow: tuple[Groups, SlowAssignor]) -> None:
    groups, _ = slow
    groups.beat("b", 0, topics=["t"])
    groups.timer.advance()
    for member in ("a", "b"):
        assert groups.beat(member, -1).error_code == 0
    groups.coordinator.run("g", lambda shard: shard.delete_group("g"), lambda _: None, lambda _: None)
    assert "g" not in groups.shard.groups
    groups.beat("n", 0, topics=["t"])
    groups.advance(50)
    group = group_of(groups)
    assert group.assignment_epoch <= group.group_epoch
    assert set(group.target) == {"n"}


def test_a_target_that_cannot_be_written_is_written_later(slow: tuple[Groups, SlowAssignor]) -> None:
    groups, _ = slow
    groups.beat("b", 0, topics=["t"])
    groups.log.error = NotEnoughReplicas("too few")
    groups.advance(50)
    assert group_of(groups).assignment_epoch == 1
    groups.log.error = None
    groups.advance(1_000)
    assert group_of(groups).assignment_epoch == 2


@pytest.mark.parametrize("seed", range(10))
def test_members_that_come_and_go_end_with_every_partition_once(seed: int) -> None:
    chance = random.Random(seed)
    groups = Groups(seed)
    counts = {name: chance.randrange(1, 9) for name in "tuvw"}
    wanted = {
        (groups.topics.put(name, count), number) for name, count in counts.items() for number in range(count)
    }
    for _ in range(30):
        names = chance.sample("tuvw", chance.randrange(1, 5))
        groups.beat(f"m{chance.randrange(8)}", chance.choice([0, 0, 0, -1]), topics=names)
        if chance.random() < 0.5:
            groups.advance(chance.randrange(3))
    groups.beat("everything", 0, topics=list("tuvw"))
    for _ in range(5):
        groups.settle()
        groups.advance(10)
    settled = groups.settle().values()
    has = [(topic, number) for each in settled for topic, numbers in each.items() for number in numbers]
    assert len(has) == len(set(has))
    assert set(has) == wanted


def test_no_step_of_the_uniform_assignor_walks_through_everything() -> None:
    """A group of forty members with differing subscriptions to ten topics of four hundred partitions."""
    topics = [Uuid(bytes([number]) * 16) for number in range(1, 11)]
    counts = dict.fromkeys(topics, 400)
    everything = frozenset(topics)
    first = run_to_end(assign_uniform({"m0": AssignorMember(everything)}, counts))
    members = {
        f"m{number}": AssignorMember(everything - {topics[number % 10]}, None, first.get(f"m{number}", {}))
        for number in range(40)
    }
    assert sum(1 for _ in assign_uniform(members, counts)) >= len(members) + len(topics)
    loads = [sum(map(len, each.values())) for each in run_to_end(assign_uniform(members, counts)).values()]
    assert max(loads) - min(loads) <= 2
