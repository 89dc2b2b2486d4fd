"""Offsets of a consumer group, as applications see them."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.ids import NO_EPOCH


class CommittedOffset(NamedTuple):
    """Offset of the next record to read, with the text that the commit carries."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_EPOCH


class OffsetAndTime(NamedTuple):
    """First record at or after a time."""

    offset: int
    timestamp_ms: int


class GroupMetadata(NamedTuple):
    """Identity of a group member, for `send_offsets_to_transaction`."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None
