"""Assignors: every partition has one owner, loads are even, and little moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.group.consumer.assignors import AssignorMember, assign_range, assign_uniform
from barnabas.coordinator.group.state.assignment import Assignment
from barnabas.core.ids import Uuid
from barnabas.core.steps import run_to_end

TOPICS = [Uuid(bytes([number]) * 16) for number in range(1, 5)]


def owned(assignment: dict[str, Assignment]) -> list[tuple[Uuid, int]]:
    return [
        (topic, number)
        for each in assignment.values()
        for topic, numbers in each.items()
        for number in numbers
    ]


def loads(assignment: dict[str, Assignment]) -> list[int]:
    return sorted(sum(map(len, each.values())) for each in assignment.values())


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[str, AssignorMember], dict[Uuid, int]]:
    counts = {topic: draw(st.integers(0, 6)) for topic in TOPICS[: draw(st.integers(1, 4))]}
    subscriptions = st.frozensets(st.sampled_from(sorted(counts)))
    same = draw(st.booleans())
    everything = frozenset(counts)
    members = {
        f"m{number}": AssignorMember(
            everything if same else draw(subscriptions),
            f"i{number}" if draw(st.booleans()) else None,
        )
        for number in range(draw(st.integers(1, 6)))
    }
    return members, counts


@st.composite
def continued_problems(draw: st.DrawFn) -> tuple[dict[str, AssignorMember], dict[Uuid, int]]:
    """Members with earlier targets, when they read other topics and these had other sizes."""
    members, counts = draw(problems())
    names = st.sampled_from([*sorted(members), None])
    targets: dict[str, dict[Uuid, set[int]]] = {name: {} for name in members}
    for topic in TOPICS:
        for number in range(draw(st.integers(0, 8))):
            owner = draw(names)
            if owner is not None:
                targets[owner].setdefault(topic, set()).add(number)
    continued = {
        name: AssignorMember(
            member.topic_ids,
            member.instance_id,
            {topic: frozenset(numbers) for topic, numbers in targets[name].items()},
        )
        for name, member in members.items()
    }
    return continued, counts


def check(members: dict[str, AssignorMember], counts: dict[Uuid, int], result: dict[str, Assignment]) -> None:
    wanted = {
        (topic, number)
        for topic, count in counts.items()
        if any(topic in member.topic_ids for member in members.values())
        for number in range(count)
    }
    found = owned(result)
    assert len(found) == len(set(found))
    assert set(found) == wanted
    assert all(result[name].keys() <= member.topic_ids for name, member in members.items())


@given(problems())
def test_everything_is_assigned_once_to_a_member_that_wants_it(
    problem: tuple[dict[str, AssignorMember], dict[Uuid, int]],
) -> None:
    for assign in (assign_range, assign_uniform):
        check(*problem, run_to_end(assign(*problem)))


@given(continued_problems())
def test_everything_is_assigned_once_whatever_was_before(
    problem: tuple[dict[str, AssignorMember], dict[Uuid, int]],
) -> None:
    for assign in (assign_range, assign_uniform):
        check(*problem, run_to_end(assign(*problem)))


def test_of_two_who_claim_a_partition_one_keeps_it() -> None:
    topic = TOPICS[0]
    members = {
        name: AssignorMember(frozenset({topic}), None, {topic: frozenset({0, 1})}) for name in ("a", "b")
    }
    for topics in ({topic}, {topic, TOPICS[1]}):
        members["b"] = AssignorMember(frozenset(topics), None, members["b"].target)
        counts = dict.fromkeys(topics, 2)
        check(members, counts, run_to_end(assign_uniform(members, counts)))


@given(problems())
def test_uniform_is_even_and_does_not_move_what_is_even(
    problem: tuple[dict[str, AssignorMember], dict[Uuid, int]],
) -> None:
    members, counts = problem
    first = run_to_end(assign_uniform(members, counts))
    if len({member.topic_ids for member in members.values()}) == 1:
        spread = loads(first)
        assert spread[-1] - spread[0] <= 1
    again = {
        name: AssignorMember(member.topic_ids, member.instance_id, first[name])
        for name, member in members.items()
    }
    assert run_to_end(assign_uniform(again, counts)) == first


def test_uniform_moves_only_what_a_newcomer_needs() -> None:
    topic = TOPICS[0]
    members = {
        "a": AssignorMember(frozenset({topic}), None, {topic: frozenset({0, 1, 2})}),
        "b": AssignorMember(frozenset({topic}), None, {topic: frozenset({3, 4, 5})}),
        "c": AssignorMember(frozenset({topic})),
    }
    result = run_to_end(assign_uniform(members, {topic: 6}))
    assert loads(result) == [2, 2, 2]
    for name in ("a", "b"):
        assert result[name][topic] < members[name].target[topic]


def test_uniform_evens_out_different_subscriptions() -> None:
    both, one = frozenset(TOPICS[:2]), frozenset(TOPICS[:1])
    members = {"a": AssignorMember(both), "b": AssignorMember(one)}
    result = run_to_end(assign_uniform(members, {TOPICS[0]: 4, TOPICS[1]: 2}))
    assert loads(result) == [3, 3]


def test_range_gives_static_members_the_same_again() -> None:
    topic = TOPICS[0]
    before = {"x1": AssignorMember(frozenset({topic}), "i"), "a": AssignorMember(frozenset({topic}))}
    after = {"zz": AssignorMember(frozenset({topic}), "i"), "a": AssignorMember(frozenset({topic}))}
    assert (
        run_to_end(assign_range(before, {topic: 3}))["x1"]
        == run_to_end(assign_range(after, {topic: 3}))["zz"]
    )
    assert run_to_end(assign_range(before, {topic: 3}))["x1"] == {topic: frozenset({0, 1})}
