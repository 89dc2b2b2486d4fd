"""Who leads a partition next. Pure functions over what is known of it.

Every selector takes the present state and returns the next one, with a leader epoch one higher,
or None when nobody may lead. The order of the assignment is the order of preference. A leader
from outside the ISR loses what it has not replicated, so only the offline selector may choose
one, only when asked, and the ISR is then this leader alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from barnabas.cluster.znodes import PartitionState
from barnabas.core.ids import NO_LEADER

RECOVERED, RECOVERING = 0, 1
"""Whether the leader was elected from the ISR, or uncleanly."""


def first_state(live: Sequence[int], controller_epoch: int) -> PartitionState | None:
    """Of a new partition: the first live replica leads, and all live ones are in sync."""
    return PartitionState(live[0], 0, tuple(live), controller_epoch) if live else None


def no_op(state: PartitionState) -> PartitionState:
    """Whoever leads goes on, in a new epoch: for the replicas to hear of a changed assignment."""
    return state._replace(leader_epoch=state.leader_epoch + 1)


def select_offline(
    assignment: Sequence[int], state: PartitionState, live: Collection[int], *, unclean: bool
) -> PartitionState | None:
    """The first live replica in sync; failing that, and if `unclean`, the first live one."""
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
    """The first replica of the new assignment that lives and is in sync."""
    leader = _first(target, live, state.isr)
    return None if leader is None else _led_by(leader, state, state.isr)


def select_preferred(
    assignment: Sequence[int], state: PartitionState, live: Collection[int]
) -> PartitionState | None:
    """The first replica of the assignment, if it lives, is in sync, and does not lead already."""
    preferred = _first(assignment[:1], live, state.isr)
    if preferred is None or preferred == state.leader:
        return None
    return _led_by(preferred, state, state.isr)


def select_for_controlled_shutdown(
    assignment: Sequence[int], state: PartitionState, live: Collection[int], shutting_down: Collection[int]
) -> PartitionState | None:
    """A live replica in sync that stays; those that shut down leave the ISR."""
    staying = [replica for replica in live if replica not in shutting_down]
    leader = _first(assignment, staying, state.isr)
    if leader is None:
        return None
    return _led_by(leader, state, tuple(replica for replica in state.isr if replica not in shutting_down))


def without_returned(
    assignment: Sequence[int], state: PartitionState, live: Collection[int], returned: Collection[int]
) -> PartitionState:
    """Those that came back leave the ISR until they have caught up, since they may have lost what was not
    synced. If nobody else lives in it they stay, and one that leads goes on in a new epoch."""
    staying = tuple(replica for replica in state.isr if replica not in returned)
    if not any(replica in live for replica in staying):
        return no_op(state) if state.leader in returned else state
    leader = state.leader if state.leader in staying else _first(assignment, live, staying)
    return _led_by(NO_LEADER if leader is None else leader, state, staying)


def without_replica(state: PartitionState, broker_id: int) -> PartitionState:
    """The replica leaves the ISR, unless it is the last one there: who was in sync last is remembered."""
    isr = state.isr
    if len(isr) > 1:
        isr = tuple(replica for replica in isr if replica != broker_id)
    leader = -1 if state.leader == broker_id else state.leader
    return state._replace(leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1)


def _first(assignment: Sequence[int], live: Collection[int], isr: Collection[int]) -> int | None:
    return next((replica for replica in assignment if replica in live and replica in isr), None)


def _led_by(leader: int, state: PartitionState, isr: tuple[int, ...]) -> PartitionState:
    return state._replace(leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1)
