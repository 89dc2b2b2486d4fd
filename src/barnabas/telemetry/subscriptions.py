"""Subscriptions to the metrics of clients, and what they demand of one client together.

The subscriptions of a client are those whose patterns all match. They are joined: all their metrics, and the
shortest of their intervals. The id of the result follows from it and from the client's instance id. So every
broker gives a client the same id, also after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from barnabas.config.dynamic.client_metrics_config import (
    CLIENT_METRICS_KEYS,
    INTERVAL,
    INTERVAL_DEFAULT_MS,
    MATCH,
    METRICS,
    parse_match,
)
from barnabas.core.errors import InvalidConfig
from barnabas.core.ids import Uuid
from barnabas.core.steps import Sliced
from barnabas.records.checksum import crc32c

logger = logging.getLogger(__name__)

ALL_METRICS: Final = "*"


class Subscription(NamedTuple):
    metrics: frozenset[str]
    interval_ms: int
    patterns: Mapping[str, Any]
    """Compiled pattern of each attribute that the client must match."""

    def matches(self, attributes: Mapping[str, str]) -> bool:
        return all(pattern.fullmatch(attributes[name]) for name, pattern in self.patterns.items())


class Demand(NamedTuple):
    """Metrics that a client is to push, and how often."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


class Subscriptions:
    def __init__(self) -> None:
        self.version = 0
        """Grows with every change: a client that knows an older one gets a new demand."""
        self._by_name: dict[str, Subscription] = {}

    def put(self, name: str, overrides: Mapping[str, str]) -> None:
        """Take over the settings of a subscription; without settings it is removed."""
        if overrides:
            values = {**CLIENT_METRICS_KEYS.defaults(), **CLIENT_METRICS_KEYS.parse(overrides)}
            try:
                patterns = parse_match(values[MATCH])
            except InvalidConfig as error:
                logger.warning("client metrics %s: subscription ignored: %s", name, error.message)
                return
            self._by_name[name] = Subscription(frozenset(values[METRICS]), values[INTERVAL], patterns)
        elif self._by_name.pop(name, None) is None:
            return
        self.version += 1

    def demand_of(self, instance_id: Uuid, attributes: Mapping[str, str]) -> Sliced[Demand]:
        """The joined demand of all subscriptions that match the client."""
        metrics: set[str] = set()
        interval_ms = INTERVAL_DEFAULT_MS
        for subscription in list(self._by_name.values()):
            yield
            if subscription.matches(attributes):
                metrics |= subscription.metrics
                interval_ms = min(interval_ms, subscription.interval_ms)
        wanted = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        return Demand(_subscription_id(instance_id, wanted, interval_ms), wanted, interval_ms)


def _subscription_id(instance_id: Uuid, metrics: tuple[str, ...], interval_ms: int) -> int:
    """A signed 32-bit number."""
    number = crc32c(f"{','.join(metrics)} {interval_ms}".encode()) ^ crc32c(instance_id)
    return number - (1 << 32) if number >> 31 else number
