"""Quotas of users and client ids, and their use.

The most specific quota counts: user and client id, user, client id, with the defaults of each in between, in
Kafka's order (`_levels`). Its level decides the sharers: a user quota is shared by all client ids of the
user. A client id quota is shared by all users of that id. A quota of both is not shared.

Clients choose client ids freely, so the meters are bounded. The least recently used meters are dropped first,
and a long id is kept as its digest. Each kind of quota has its own meters: invented client ids push out
meters of one kind only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, TypeVar

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.client_entities import (
    CLIENTS,
    USERS,
    ClientEntities,
    EntityPart,
    EntityPath,
    Values,
)
from barnabas.core.clock import Clock
from barnabas.core.errors import ThrottlingQuotaExceeded
from barnabas.core.limits import NAME_CHARS_REMEMBERED_MAX
from barnabas.core.reporting.metrics import Metrics
from barnabas.quota.keys import (
    CLIENT_KEYS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    quotas_in,
)
from barnabas.quota.sampled_rate import SampledRate
from barnabas.quota.token_bucket import TokenBucket

T = TypeVar("T")

METERS_MAX: Final = 10_000
INT32_MAX: Final = (1 << 31) - 1
PERCENT_PER_MS: Final = 0.1
"""A second of the loop in a second is 100 percent."""

Sharers = tuple[str, str | None, str | None]
"""The key, and the user and client id that a meter counts for; None where all share it."""


class ClientQuotas:
    """All client quotas of a broker; `is_limiting` is False as long as there is none."""

    def __init__(self, clients: ClientEntities, config: BrokerConfig, clock: Clock, metrics: Metrics) -> None:
        self._config = config
        self._now_ms = clock.monotonic_ms
        self._limits: dict[EntityPath, dict[str, float]] = {}
        self._found: dict[Sharers, tuple[float, Sharers] | None] = {}
        """Cache of `limit`, until a quota changes."""
        self._rates: dict[str, dict[Sharers, SampledRate]] = {key: {} for key in CLIENT_KEYS}
        self._buckets: dict[Sharers, TokenBucket] = {}
        self._throttled = {
            key: metrics.counter(
                "kafka_throttled_requests_total", "Requests above a quota of the client.", quota=key
            )
            for key in CLIENT_KEYS
        }
        self.is_limiting = False
        clients.on_change(self._put)

    # --- limits ---

    def _put(self, path: EntityPath, values: Values) -> None:
        limits = {key: limit for key, limit in quotas_in(values).items() if key in CLIENT_KEYS}
        if limits == self._limits.get(path, {}):
            return  # another property of the entity changed, such as its credentials: the meters stay
        if limits:
            self._limits[path] = limits
        else:
            self._limits.pop(path, None)
        self.is_limiting = bool(self._limits)
        self._found.clear()
        self._buckets.clear()

    def limit(self, key: str, user: str, client_id: str) -> tuple[float, Sharers] | None:
        """The quota that counts, and the sharers of it; None if there is none."""
        who = (key, user, client_id)
        if who in self._found:
            return self._found[who]
        found = self._find(key, user, client_id)
        if len(client_id) <= NAME_CHARS_REMEMBERED_MAX:
            _remember(self._found, who, found)
        return found

    def _find(self, key: str, user: str, client_id: str) -> tuple[float, Sharers] | None:
        for path, sharers in _levels(key, user, client_id):
            limits = self._limits.get(path)
            if limits is not None and key in limits:
                return limits[key], sharers
        return None

    # --- use ---

    def charge_produce(self, user: str, client_id: str | None, size_bytes: int) -> int:
        """Throttle time in milliseconds for a producer that has just sent this many bytes."""
        return self._charge(PRODUCER_BYTE_RATE, user, client_id, size_bytes)

    def charge_fetch(self, user: str, client_id: str | None, size_bytes: int) -> int:
        """Throttle time for a consumer that is about to get this many bytes. A throttled consumer gets no
        records, and is not charged.

        A single batch may be larger than `fetch_bytes_max`, and no pause is long enough for it. It is sent as
        soon as the quota allows any byte at all, and the pause follows.
        """
        throttle_ms = self._charge(CONSUMER_BYTE_RATE, user, client_id, size_bytes)
        found = self.limit(CONSUMER_BYTE_RATE, user, client_id or "") if throttle_ms else None
        if found is None:
            return throttle_ms
        limit, sharers = found
        rate, now_ms = self._rates[CONSUMER_BYTE_RATE][sharers], self._now_ms()
        rate.record(-size_bytes, now_ms)
        if size_bytes > self.fetch_bytes_max(user, client_id) and rate.value(now_ms) <= limit:
            rate.record(size_bytes, now_ms)
            return 0
        return throttle_ms

    def fetch_bytes_max(self, user: str, client_id: str | None) -> float:
        """Largest response for a consumer: more than fits into all windows would be refused forever."""
        found = self.limit(CONSUMER_BYTE_RATE, user, client_id or "")
        if found is None:
            return float("inf")
        config = self._config
        return found[0] * max(1, config.quota_window_num - 1) * config.quota_window_size_seconds

    def charge_time(self, user: str, client_id: str | None, spent_ms: float) -> int:
        """Throttle time for this much time of the loop: a window at most."""
        throttle_ms = self._charge(REQUEST_PERCENTAGE, user, client_id, spent_ms * PERCENT_PER_MS)
        return min(throttle_ms, self._config.quota_window_size_seconds * 1_000)

    def charge_mutations(self, user: str, client_id: str | None, count: int, *, is_strict: bool) -> int:
        """Throttle time for changes to `count` partitions.

        A client that knows THROTTLING_QUOTA_EXCEEDED gets that error while it is in debt; older clients are
        only throttled.
        """
        found = self.limit(CONTROLLER_MUTATION_RATE, user, client_id or "")
        if found is None:
            return 0
        rate, sharers = found
        now_ms = self._now_ms()
        bucket = self._buckets.get(sharers)
        if bucket is None:
            config = self._config
            burst_s = config.controller_quota_window_num * config.controller_quota_window_size_seconds
            bucket = TokenBucket(rate, burst_s, now_ms)
            _remember(self._buckets, sharers, bucket)
        owed_ms = bucket.wait_ms(now_ms)
        if owed_ms and is_strict:
            self._throttled[CONTROLLER_MUTATION_RATE].value += 1
            raise ThrottlingQuotaExceeded("The throttling quota has been exceeded.")
        bucket.take(count, now_ms)
        throttle_ms = 0 if is_strict else _whole(bucket.wait_ms(now_ms))
        if throttle_ms:
            self._throttled[CONTROLLER_MUTATION_RATE].value += 1
        return throttle_ms

    def mutation_wait_ms(self, user: str, client_id: str | None) -> int:
        """Time until mutations are allowed again."""
        found = self.limit(CONTROLLER_MUTATION_RATE, user, client_id or "")
        bucket = self._buckets.get(found[1]) if found is not None else None
        return _whole(bucket.wait_ms(self._now_ms())) if bucket is not None else 0

    def _charge(self, key: str, user: str, client_id: str | None, amount: float) -> int:
        found = self.limit(key, user, client_id or "")
        if found is None:
            return 0
        limit, sharers = found
        rates = self._rates[key]
        rate = rates.pop(sharers, None)
        if rate is None:
            config = self._config
            rate = SampledRate(config.quota_window_num, config.quota_window_size_seconds * 1_000)
        _remember(rates, sharers, rate)
        now_ms = self._now_ms()
        rate.record(amount, now_ms)
        throttle_ms = _whole(rate.throttle_ms(limit, now_ms))
        if throttle_ms:
            self._throttled[key].value += 1
        return throttle_ms


def _levels(key: str, user: str, client_id: str) -> Iterator[tuple[EntityPath, Sharers]]:
    client = _in_short(client_id)
    for of_user in (user, None):
        users = EntityPart(USERS, of_user)
        for of_client in (client_id, None):
            yield (users, EntityPart(CLIENTS, of_client)), (key, user, client)
        yield (users,), (key, user, None)
    for of_client in (client_id, None):
        yield (EntityPart(CLIENTS, of_client),), (key, None, client)


def _in_short(client_id: str) -> str:
    if len(client_id) <= NAME_CHARS_REMEMBERED_MAX:
        return client_id
    return hashlib.sha256(client_id.encode()).hexdigest()


def _remember(meters: dict[Sharers, T], sharers: Sharers, meter: T) -> None:
    """Keep the meter as the most recently used one."""
    meters[sharers] = meter
    if len(meters) > METERS_MAX:
        del meters[next(iter(meters))]


def _whole(wait_ms: float) -> int:
    """Whole milliseconds, bounded by the field of a response; less than a millisecond is none."""
    return int(min(wait_ms, INT32_MAX) + 0.5)
