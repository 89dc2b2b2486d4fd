from __future__ import annotations

from collections import Counter

import pytest

from barnabas.cluster.metadata.replica_placement import alternate_racks, assign_replicas
from barnabas.core.errors import (
    InvalidPartitions,
    InvalidReplicationFactor,
)

RACKS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def test_followers_shift_further_each_time_round() -> None:
    """The table that Kafka's documentation shows for five brokers and ten partitions."""
    assignment = assign_replicas(dict.fromkeys(range(5)), 10, 3, start_index=0)
    assert assignment == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_racks_alternate() -> None:
    assert alternate_racks(RACKS) == [0, 3, 1, 5, 4, 2]
    assert alternate_racks({0: "a", 1: "a", 2: "a", 3: "b"}) == [0, 3, 1, 2]


def test_replicas_spread_over_racks() -> None:
    """The example of Kafka's documentation: six partitions, then a seventh whose followers shift."""
    assignment = assign_replicas(RACKS, 7, 3, start_index=0)
    assert assignment == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


def test_every_rack_gets_a_replica_before_one_gets_two() -> None:
    racks = {0: "a", 1: "a", 2: "a", 3: "a", 4: "b", 5: "c"}
    for start in range(6):
        for replicas in assign_replicas(racks, 30, 4, start_index=start, shift=2).values():
            assert len(set(replicas)) == 4
            assert {racks[replica] for replica in replicas} == {"a", "b", "c"}


def test_leaders_are_even() -> None:
    assignment = assign_replicas(dict.fromkeys([7, 3, 9]), 30, 2, start_index=1, shift=0)
    assert set(Counter(replicas[0] for replicas in assignment.values()).values()) == {10}
    assert set(Counter(replicas[1] for replicas in assignment.values()).values()) == {10}


def test_racks_are_ignored_unless_every_broker_has_one() -> None:
    partial = {0: "a", 1: None, 2: "b"}
    assert assign_replicas(partial, 3, 2, start_index=0) == assign_replicas(
        dict.fromkeys(partial), 3, 2, start_index=0
    )


def test_added_partitions_continue_the_numbering() -> None:
    brokers = dict.fromkeys(range(3))
    assert list(assign_replicas(brokers, 2, 1, start_index=0, first_partition=4)) == [4, 5]


def test_one_broker_holds_everything() -> None:
    assert assign_replicas({1: None}, 2, 1, start_index=0) == {0: (1,), 1: (1,)}
    assert assign_replicas({1: "a"}, 2, 1, start_index=5) == {0: (1,), 1: (1,)}


def test_what_cannot_be_assigned_is_refused() -> None:
    with pytest.raises(InvalidPartitions):
        assign_replicas({1: None}, 0, 1, start_index=0)
    with pytest.raises(InvalidReplicationFactor):
        assign_replicas({1: None}, 1, 0, start_index=0)
    with pytest.raises(InvalidReplicationFactor, match="there are 1"):
        assign_replicas({1: None}, 1, 2, start_index=0)
