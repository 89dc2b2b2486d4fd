"""Followers of a partition as the leader sees them: offsets in, high watermark out.

The high watermark is the smallest offset that every in-sync replica has reached. Records below it are
committed, and consumers see only those. These functions are pure: the clock, the ISR and the log's offsets
are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from barnabas.core.ids import BrokerId
from barnabas.replication.partition.remote_replica import RemoteReplica

Followers = dict[BrokerId, RemoteReplica]
"""A leader's other replicas; empty on a follower."""


def followers_of(
    leader_id: BrokerId,
    replicas: Iterable[BrokerId],
    isr: Collection[BrokerId],
    previous: Followers,
    now_ms: float,
    log_end_offset: int,
    *,
    is_new_epoch: bool,
) -> Followers:
    """Followers of a leader that was elected or confirmed; known followers keep their state."""
    followers: Followers = {}
    for broker_id in replicas:
        if broker_id != leader_id:
            follower = followers[broker_id] = previous.get(broker_id) or RemoteReplica(broker_id)
            follower.reset(now_ms, log_end_offset, is_new_epoch=is_new_epoch, is_in_sync=broker_id in isr)
    return followers


def replicated_end_offset(
    followers: Followers,
    durable_end_offset: int,
    maximal_isr: Collection[BrokerId],
    log_end_offset: int,
    now_ms: float,
    lag_time_max_ms: float,
    is_live: Callable[[int], bool],
) -> int:
    """Smallest log end offset of the maximal ISR and of followers about to join it. Without waiting for
    those, they would run after the end for ever."""
    end_offset = durable_end_offset
    for broker_id, follower in followers.items():
        if follower.end_offset < end_offset and (
            broker_id in maximal_isr
            or (
                follower.end_offset >= 0
                and follower.is_caught_up(log_end_offset, now_ms, lag_time_max_ms)
                and is_live(broker_id)
            )
        ):
            end_offset = follower.end_offset
    return end_offset


def lagging_members(
    followers: Followers,
    isr: Collection[BrokerId],
    log_end_offset: int,
    now_ms: float,
    lag_time_max_ms: float,
) -> frozenset[BrokerId]:
    """ISR members that have not been caught up for too long."""
    return frozenset(
        broker_id
        for broker_id, follower in followers.items()
        if broker_id in isr and not follower.is_caught_up(log_end_offset, now_ms, lag_time_max_ms)
    )


def low_watermark(
    followers: Mapping[BrokerId, RemoteReplica], log_start_offset: int, is_live: Callable[[int], bool]
) -> int:
    """Lowest log start offset of the live replicas: everything below is gone everywhere."""
    low = log_start_offset
    for broker_id, follower in followers.items():
        if follower.start_offset < low and is_live(broker_id):
            low = follower.start_offset
    return low
