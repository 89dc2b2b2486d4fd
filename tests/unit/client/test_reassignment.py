"""Plans of moves: replicas stay where they can, and others move where there is room."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.admin.reassignment import plan_as_json, plan_from_json, plan_moves
from barnabas.core.errors import InvalidReplicationFactor
from barnabas.core.ids import TopicPartition

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))


def racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def test_replicas_on_target_brokers_do_not_move() -> None:
    assert plan_moves({A0: (1, 2), A1: (2, 3)}, [A0, A1], racks(1, 2, 3)) == {}


def test_a_replacement_takes_the_place_of_what_it_replaces() -> None:
    assert plan_moves({A0: (1, 2, 3)}, [A0], racks(2, 3, 4)) == {A0: (4, 2, 3)}


def test_new_replicas_go_to_the_brokers_with_the_fewest() -> None:
    present = {A0: (1, 2), A1: (1, 2), A2: (3, 2)}
    assert plan_moves(present, [A0, A1], racks(2, 3, 4)) == {A0: (4, 2), A1: (3, 2)}


def test_a_rack_that_the_partition_lacks_comes_first() -> None:
    present = {A0: (1, 2), A1: (4, 4)}
    plan = plan_moves(present, [A0], {2: "east", 3: "east", 4: "west"})
    assert plan == {A0: (4, 2)}


def test_the_replication_factor_grows_and_shrinks() -> None:
    assert plan_moves({A0: (1,)}, [A0], racks(1, 2, 3), 3) == {A0: (1, 2, 3)}
    assert plan_moves({A0: (3, 1, 2)}, [A0], racks(1, 2, 3), 1) == {A0: (3,)}


def test_more_replicas_than_brokers_are_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidReplicationFactor, match=r"3 replicas.*only 2 brokers.*1, 2"):
        plan_moves({A0: (1, 2, 3)}, [A0], racks(1, 2))


def test_with_no_other_broker_nothing_can_move() -> None:
    with pytest.raises(InvalidReplicationFactor, match="no other broker can hold a-0"):
        plan_moves({A0: (1,)}, [A0], racks())


@given(
    st.lists(st.permutations(range(6)).map(lambda order: tuple(order[:3])), min_size=1, max_size=30),
    st.integers(0, 5),
)
def test_a_broker_is_emptied_evenly(present: list[tuple[int, ...]], leaving: int) -> None:
    everything = {TopicPartition("t", number): replicas for number, replicas in enumerate(present)}
    held = [each for each, replicas in everything.items() if leaving in replicas]
    targets = racks(*(broker for broker in range(6) if broker != leaving))
    plan = plan_moves(everything, held, targets)
    assert set(plan) == set(held)
    for each, replicas in plan.items():
        assert len(set(replicas)) == 3
        assert leaving not in replicas
        stayed = set(everything[each]) - {leaving}
        assert stayed < set(replicas)
    load = Counter(broker for replicas in (everything | plan).values() for broker in replicas)
    assert load[leaving] == 0


def test_a_plan_survives_its_json() -> None:
    plan = {A0: (1, 2), A1: (3,)}
    assert plan_from_json(plan_as_json(plan)) == plan


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], "not of the form"),
        ({"partitions": [{"topic": "a"}]}, r"partitions\[0\] needs"),
        ({"partitions": [{"topic": "a", "partition": 0, "replicas": []}]}, "one or more different"),
        ({"partitions": [{"topic": "a", "partition": 0, "replicas": [1, 1]}]}, "one or more different"),
        ({"partitions": [{"topic": "a", "partition": 0, "replicas": [1]}] * 2}, "a-0 appears twice"),
    ],
)
def test_a_plan_that_makes_no_sense_says_where(document: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        plan_from_json(document)
