"""Each selector, alone."""

from __future__ import annotations

import pytest

from barnabas.cluster.znodes.layout import PartitionState
from barnabas.controller.machines.leader_selection import (
    RECOVERED,
    RECOVERING,
    first_state,
    no_op,
    select_for_controlled_shutdown,
    select_offline,
    select_preferred,
    select_reassigned,
    without_replica,
    without_returned,
)

STATE = PartitionState(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=3, state_version=9)


def test_the_first_leader_is_the_first_live_replica() -> None:
    assert first_state([2, 3], 5) == PartitionState(2, 0, (2, 3), 5)
    assert first_state([], 5) is None


def test_no_op_only_raises_the_epoch() -> None:
    assert no_op(STATE) == STATE._replace(leader_epoch=5)


@pytest.mark.parametrize(
    ("live", "unclean", "leader", "isr"),
    [
        ([1, 2, 3], False, 1, (1, 2)),
        ([2, 3], False, 2, (2,)),
        ([2, 3], True, 2, (2,)),
        ([3], True, 3, (3,)),
    ],
)
def test_offline_prefers_the_isr_in_the_order_of_the_assignment(
    live: list[int], unclean: bool, leader: int, isr: tuple[int, ...]
) -> None:
    chosen = select_offline([1, 2, 3], STATE, live, unclean=unclean)
    assert chosen is not None
    assert (chosen.leader, chosen.isr, chosen.leader_epoch) == (leader, isr, 5)
    assert chosen.state_version == STATE.state_version
    assert chosen.leader_recovery_state == (RECOVERING if leader not in STATE.isr else RECOVERED)


def test_no_replica_outside_the_isr_leads_unless_asked_for() -> None:
    assert select_offline([1, 2, 3], STATE, [3], unclean=False) is None
    assert select_offline([1, 2, 3], STATE, [], unclean=True) is None


def test_a_reassigned_partition_is_led_by_the_target_that_is_in_sync() -> None:
    state = STATE._replace(isr=(1, 5, 6))
    chosen = select_reassigned([4, 5, 6], state, [4, 5, 6])
    assert chosen == state._replace(leader=5, leader_epoch=5)
    assert select_reassigned([4, 5], state, [4]) is None


def test_preferred_is_the_first_of_the_assignment_or_no_broker() -> None:
    assert select_preferred([2, 1], STATE, [1, 2]) == STATE._replace(leader=2, leader_epoch=5)
    assert select_preferred([3, 1], STATE, [1, 3]) is None, "not in sync"
    assert select_preferred([2, 1], STATE, [1]) is None, "not alive"


def test_preferred_refuses_who_leads_already() -> None:
    assert select_preferred([1, 2], STATE, [1, 2]) is None


def test_controlled_shutdown_moves_to_a_replica_that_stays() -> None:
    chosen = select_for_controlled_shutdown([1, 2, 3], STATE, [1, 2, 3], {1})
    assert chosen == STATE._replace(leader=2, leader_epoch=5, isr=(2,))
    assert select_for_controlled_shutdown([1, 2, 3], STATE, [1, 2, 3], {1, 2}) is None


def test_a_replica_leaves_the_isr_but_the_last_one_stays() -> None:
    assert without_replica(STATE, 2) == STATE._replace(isr=(1,), leader_epoch=5)
    assert without_replica(STATE, 1) == STATE._replace(leader=-1, isr=(2,), leader_epoch=5)
    alone = STATE._replace(isr=(1,))
    assert without_replica(alone, 1) == alone._replace(leader=-1, leader_epoch=5)


def test_a_returning_broker_leaves_the_isr_unless_it_is_the_last() -> None:
    assert without_returned([1, 2], STATE, [1, 2], {2}) == STATE._replace(isr=(1,), leader_epoch=5)
    assert without_returned([1, 2], STATE, [1, 2], {1}) == STATE._replace(leader=2, isr=(2,), leader_epoch=5)
    assert without_returned([1, 2], STATE, [1, 2], {1, 2}) == STATE._replace(leader_epoch=5)
    assert without_returned([1, 2], STATE, [1], {1}) == STATE._replace(leader_epoch=5)
    assert without_returned([1, 2], STATE, [2], {2}) == STATE


def test_the_order_of_the_assignment_decides_and_not_that_of_the_isr() -> None:
    state = PartitionState(1, 4, (3, 2, 1), 1)
    elected = select_offline((1, 2, 3), state, {2, 3}, unclean=False)
    assert elected is not None
    assert (elected.leader, elected.isr) == (2, (3, 2))
    reassigned = select_reassigned((2, 3), state, {2, 3})
    assert reassigned is not None
    assert reassigned.leader == 2
    moved = select_for_controlled_shutdown((1, 2, 3), state, {1, 2, 3}, {1})
    assert moved is not None
    assert (moved.leader, moved.isr) == (2, (3, 2))
