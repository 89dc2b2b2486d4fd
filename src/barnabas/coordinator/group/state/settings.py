"""Configuration of the group coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.definitions.shorthand import MINUTE_MS
from barnabas.config.dynamic.group_config import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from barnabas.config.dynamic.repository import ConfigRepository

GROUP_VERSION_FEATURE: Final = "group.version"
GROUP_VERSION: Final = 1
"""`group.version` from which the consumer protocol is served (KIP-848)."""

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A member that never completed a join is removed after this, however long its session."""


class MigrationPolicy(Enum):
    """Online conversion of groups with members (`group.consumer.migration.policy`)."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class ConsumerTimes(NamedTuple):
    """Timeouts that a consumer group may override."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


TimesOfGroup = Callable[[str], ConsumerTimes]
"""Called at each heartbeat, so that a change reaches existing groups."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Static configuration of groups. `consumer_times` covers the keys that may change at runtime."""

    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    max_size: int
    offset_metadata_max_bytes: int
    offsets_retention_ms: int
    offsets_retention_check_interval_ms: int

    protocols: frozenset[str]
    consumer_times: TimesOfGroup
    consumer_max_size: int
    consumer_assignors: tuple[str, ...]
    migration_policy: MigrationPolicy

    @classmethod
    def of(cls, config: BrokerConfig, configs: ConfigRepository) -> GroupSettings:
        return cls(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            protocols=frozenset(config.group_coordinator_rebalance_protocols),
            consumer_times=lambda group: ConsumerTimes(
                configs.group_value(group, SESSION_TIMEOUT), configs.group_value(group, HEARTBEAT_INTERVAL)
            ),
            consumer_max_size=config.group_consumer_max_size,
            consumer_assignors=tuple(_assignor_name(name) for name in config.group_consumer_assignors),
            migration_policy=MigrationPolicy(config.group_consumer_migration_policy),
        )


def _assignor_name(name: str) -> str:
    """`org.apache.kafka.coordinator.group.assignor.UniformAssignor` is `uniform` here."""
    return name.rsplit(".", 1)[-1].removesuffix("Assignor").lower()
