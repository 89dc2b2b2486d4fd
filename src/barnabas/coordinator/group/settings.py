"""The settings that groups are run by; `node` fills them in from the broker's configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.coordinator.group.migration import MigrationPolicy

GROUP_VERSION_FEATURE: Final = "group.version"
GROUP_VERSION: Final = 1
"""From this level on groups of the consumer protocol are served (KIP-848)."""

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A member that never completed a join is forgotten after this, however long its session."""


class ConsumerTimes(NamedTuple):
    """What a group of the consumer protocol may have of its own."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


TimesOfGroup = Callable[[str], ConsumerTimes]
"""Asked at each heartbeat, so that a change reaches groups that live."""


def _default_times(_: str) -> ConsumerTimes:
    return ConsumerTimes(session_timeout_ms=45_000, heartbeat_interval_ms=5_000)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = (1 << 31) - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000

    protocols: frozenset[str] = frozenset({"classic", "consumer"})
    consumer_times: TimesOfGroup = _default_times
    consumer_max_size: int = (1 << 31) - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: MigrationPolicy = field(default=MigrationPolicy.DISABLED)
