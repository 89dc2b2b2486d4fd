"""The quotas of users and client ids, and how much of them is used.

The most specific quota counts: that of the user and client id, of the user, of the client id, with the
defaults of each in between, in Kafka's order (`_levels`). Where it was found also says who shares it: a
quota of a user is shared by all client ids of the user, one of a client id by all its users, one of both by
nobody.

Client ids are free for everyone to invent, so what is remembered is bounded: the meters that were used
longest ago are forgotten first, and a long id is remembered by its digest. Each kind of quota has meters of
its own: where only one of them is set for each client id, inventing ids makes nobody forget another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, TypeVar

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.client_entities import CLIENTS, USERS, ClientEntities, EntityPart, EntityPath, Values
from barnabas.core.clock import Clock
from barnabas.core.errors import ThrottlingQuotaExceeded
from barnabas.core.limits import NAME_CHARS_REMEMBERED_MAX
from barnabas.core.metrics import Metrics
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
"""The key, and the user and the client id that a meter counts for; None where all share it."""


class ClientQuotas:
    """One per broker; `is_limiting` is False as long as there is no quota at all."""

    def __init__(
        self, clients: ClientEntities, settings: BrokerConfig, clock: Clock, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._now_ms = clock.monotonic_ms
        self._limits: dict[EntityPath, dict[str, float]] = {}
        self._found: dict[Sharers, tuple[float, Sharers] | None] = {}
        """What `limit` found, until a quota changes."""
        self._rates: dict[str, dict[Sharers, SampledRate]] = {key: {} for key in CLIENT_KEYS}
        self._buckets: dict[Sharers, TokenBucket] = {}
        self._throttled = {
            key: metrics.counter(
                "kafka_throttled_requests_total", "Requests above a quota of their client.", quota=key
            )
            for key in CLIENT_KEYS
        }
        self.is_limiting = False
        clients.on_change(self._put)

    # --- what the quotas are ---

    def _put(self, path: EntityPath, values: Values) -> None:
        limits = {key: limit for key, limit in quotas_in(values).items() if key in CLIENT_KEYS}
        if limits == self._limits.get(path, {}):
            return  # something else of the entity changed, its credentials say: what is owed is owed
        if limits:
            self._limits[path] = limits
        else:
            self._limits.pop(path, None)
        self.is_limiting = bool(self._limits)
        self._found.clear()
        self._buckets.clear()

    def limit(self, key: str, user: str, client_id: str) -> tuple[float, Sharers] | None:
        """The quota that counts, and who shares it; None if there is none."""
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

    # --- what is used of them ---

    def charge_produce(self, user: str, client_id: str | None, size_bytes: int) -> int:
        """How long to throttle a producer that has just sent this much, in milliseconds."""
        return self._charge(PRODUCER_BYTE_RATE, user, client_id, size_bytes)

    def charge_fetch(self, user: str, client_id: str | None, size_bytes: int) -> int:
        """The same for a consumer that is about to be sent this much. One that is throttled is sent nothing,
        and nothing is charged.

        A single batch may be larger than `fetch_bytes_max`, and no silence is long enough for it: it is sent
        as soon as the quota would allow anything at all, and is waited for afterwards."""
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
        """What a consumer may get at once: more than fits into all windows would be refused for ever."""
        found = self.limit(CONSUMER_BYTE_RATE, user, client_id or "")
        if found is None:
            return float("inf")
        settings = self._settings
        return found[0] * max(1, settings.quota_window_num - 1) * settings.quota_window_size_seconds

    def charge_time(self, user: str, client_id: str | None, spent_ms: float) -> int:
        """How long to throttle who has taken so much of the loop's time: a window at most."""
        throttle_ms = self._charge(REQUEST_PERCENTAGE, user, client_id, spent_ms * PERCENT_PER_MS)
        return min(throttle_ms, self._settings.quota_window_size_seconds * 1_000)

    def charge_mutations(self, user: str, client_id: str | None, count: int, *, is_strict: bool) -> int:
        """How long to throttle who changes so many partitions. Clients that know the error are refused the
        change while they owe for earlier ones (THROTTLING_QUOTA_EXCEEDED); older ones are throttled only."""
        found = self.limit(CONTROLLER_MUTATION_RATE, user, client_id or "")
        if found is None:
            return 0
        rate, sharers = found
        now_ms = self._now_ms()
        bucket = self._buckets.get(sharers)
        if bucket is None:
            settings = self._settings
            burst_s = settings.controller_quota_window_num * settings.controller_quota_window_size_seconds
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
        """How long until changes are allowed again."""
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
            settings = self._settings
            rate = SampledRate(settings.quota_window_num, settings.quota_window_size_seconds * 1_000)
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
    """As the one that was used last."""
    meters[sharers] = meter
    if len(meters) > METERS_MAX:
        del meters[next(iter(meters))]


def _whole(wait_ms: float) -> int:
    """A wait of less than a millisecond is none, and none is longer than an answer has room to say."""
    return int(min(wait_ms, INT32_MAX) + 0.5)
