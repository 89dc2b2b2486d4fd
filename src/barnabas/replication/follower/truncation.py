"""Where a follower cuts its log, so that its history becomes the leader's (KIP-101, KIP-279)."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.ids import NO_EPOCH
from barnabas.protocol.messages.fetch import EpochEndOffset


def truncation_offset(
    end_offset_for_epoch: Callable[[int], tuple[int, int]], log_end_offset: int, leader: EpochEndOffset
) -> int:
    """Where to cut our log, given the epoch that the leader offers and where it ended there.

    If we know that epoch, both histories are one up to the smaller of its two ends. If we do not
    (KIP-279), nothing of ours beyond the largest epoch below it can be the leader's: cut there, and
    the next fetch compares again."""
    epoch, end_offset = end_offset_for_epoch(leader.epoch)
    if NO_EPOCH in (leader.epoch, epoch):
        return min(leader.end_offset, log_end_offset)
    if epoch != leader.epoch:
        return min(end_offset, log_end_offset)
    return min(end_offset, leader.end_offset, log_end_offset)
