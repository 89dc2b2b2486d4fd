"""Leader selection for a partition. Pure functions of its state.

Every selector takes the present state and returns the next one, with a leader epoch one higher, or None if no
replica may lead. The order of the assignment is the order of preference. A leader outside the ISR loses the
records that it has not replicated. So only the offline selector may choose one, only if `unclean`, and the
ISR is then this leader alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from barnabas.cluster.znodes.layout import PartitionState
from barnabas.core.ids import NO_LEADER

RECOVERED, RECOVERING = 0, 1
"""Leader recovery states: elected from the ISR, or uncleanly."""


def first_state(live: Sequence[int], controller_epoch: int) -> PartitionState | None:
    """First state of a new partition: the first live replica leads, and all live ones are in sync."""
    return PartitionState(live[0], 0, tuple(live), controller_epoch) if live else None


def no_op(state: PartitionState) -> PartitionState:
    """Keep the leader in a new epoch, so that the replicas receive a changed assignment."""
    return state._replace(leader_epoch=state.leader_epoch + 1)


def select_offline(
    assignment: Sequence[int], state: PartitionState, live: Collection[int], *, unclean: bool
) -> PartitionState | None:
    """First live replica in the ISR; without one, and if `unclean`, the first live replica."""
    leader = _first(assignment, live, state.isr)
    if leader is not None:
        return _led_by(leader, state, tuple(replica for replica in state.isr if replica in live))
    if unclean:
        leader = next((replica for replica in assignment if replica in live), None)
        if leader is not None:
            return _led_by(leader, state, (leader,))._replace(leader_recovery_state=RECOVERING)
    return None


def select_reassigned(
    target: Sequence[int], state: PartitionState, live: Collection[int]
) -> PartitionState | None:
    """First replica of the new assignment that is live and in the ISR."""
    leader = _first(target, live, state.isr)
    return None if leader is None else _led_by(leader, state, state.isr)


def select_preferred(
    assignment: Sequence[int], state: PartitionState, live: Collection[int]
) -> PartitionState | None:
    """First replica of the assignment, if it is live, in the ISR and not the leader."""
    preferred = _first(assignment[:1], live, state.isr)
    if preferred is None or preferred == state.leader:
        return None
    return _led_by(preferred, state, state.isr)


def select_for_controlled_shutdown(
    assignment: Sequence[int], state: PartitionState, live: Collection[int], shutting_down: Collection[int]
) -> PartitionState | None:
    """First live replica in the ISR that is not shutting down; those that are leave the ISR."""
    staying = [replica for replica in live if replica not in shutting_down]
    leader = _first(assignment, staying, state.isr)
    if leader is None:
        return None
    return _led_by(leader, state, tuple(replica for replica in state.isr if replica not in shutting_down))


def without_returned(
    assignment: Sequence[int], state: PartitionState, live: Collection[int], returned: Collection[int]
) -> PartitionState:
    """Remove restarted replicas from the ISR until they have caught up, since they may have lost records.

    If no other replica in the ISR is live they stay, and a restarted leader continues in a new epoch.
    """
    staying = tuple(replica for replica in state.isr if replica not in returned)
    if not any(replica in live for replica in staying):
        return no_op(state) if state.leader in returned else state
    leader = state.leader if state.leader in staying else _first(assignment, live, staying)
    return _led_by(NO_LEADER if leader is None else leader, state, staying)


def without_replica(state: PartitionState, broker_id: int) -> PartitionState:
    """Remove the replica from the ISR, unless it is the last one, which is remembered as the last in sync."""
    isr = state.isr
    if len(isr) > 1:
        isr = tuple(replica for replica in isr if replica != broker_id)
    leader = -1 if state.leader == broker_id else state.leader
    return state._replace(leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1)


def _first(assignment: Sequence[int], live: Collection[int], isr: Collection[int]) -> int | None:
    return next((replica for replica in assignment if replica in live and replica in isr), None)


def _led_by(leader: int, state: PartitionState, isr: tuple[int, ...]) -> PartitionState:
    return state._replace(leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1)
