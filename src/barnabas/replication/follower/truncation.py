"""Truncation offset of a follower whose history diverges from its leader's (KIP-101, KIP-279)."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.ids import NO_EPOCH
from barnabas.protocol.messages.fetch import EpochEndOffset


def truncation_offset(
    end_offset_for_epoch: Callable[[int], tuple[int, int]], log_end_offset: int, leader: EpochEndOffset
) -> int:
    """Offset to truncate the local log to, given the leader's epoch and where it ended there.

    If the local log has that epoch, both histories are equal up to the smaller of its two ends. If it does
    not (KIP-279), nothing beyond the largest local epoch below it can be the leader's. The log is truncated
    there, and the next fetch compares again.
    """
    epoch, end_offset = end_offset_for_epoch(leader.epoch)
    if NO_EPOCH in (leader.epoch, epoch):
        return min(leader.end_offset, log_end_offset)
    if epoch != leader.epoch:
        return min(end_offset, log_end_offset)
    return min(end_offset, leader.end_offset, log_end_offset)
