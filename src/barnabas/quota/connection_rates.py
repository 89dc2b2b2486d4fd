"""Connection creation rates: of the broker, of a listener and of an IP address.

Above the broker's or the listener's rate no connection is accepted for a while: clients wait in the backlog.
An address above its own rate must not delay the others. Its connection is accepted, left idle for the
throttle time and closed, so that a client which reconnects at once is slowed down too.
"""

from __future__ import annotations

import logging
from functools import partial

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.client_entities import IPS, ClientEntities, EntityPath, Values
from barnabas.core.addressing.addresses import without_zone
from barnabas.core.addressing.host_lookup import HostLookup
from barnabas.core.clock import Clock
from barnabas.core.reporting.log_text import cut
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.quota.keys import CONNECTION_CREATION_RATE, quotas_in
from barnabas.quota.sampled_rate import SampledRate

logger = logging.getLogger(__name__)

ADDRESSES_MAX = 10_000
"""Rates that are kept; beyond it, addresses with the oldest connections are dropped."""


class ConnectionRates:
    def __init__(
        self, clients: ClientEntities, config: BrokerConfig, clock: Clock, hosts: HostLookup
    ) -> None:
        self._config = config
        self._now_ms = clock.monotonic_ms
        self._hosts = hosts
        self._limited_log = RateLimitedLogger(logger, clock)
        self._limits: dict[str | None, float] = {}
        """Limits by entity name; None is the default."""
        self._address_of: dict[str, str] = {}
        """Address by entity name, which may be a host or an address in any spelling."""
        self._names_of: dict[str, set[str]] = {}
        """Entity names by address."""
        self._addresses: dict[str, SampledRate] = {}
        self._broker = self._new_rate()
        self._listeners: dict[str, SampledRate] = {}
        clients.on_change(self._put)

    def _put(self, path: EntityPath, values: Values) -> None:
        if path[0].type != IPS:
            return
        name = path[0].name
        limit = quotas_in(values).get(CONNECTION_CREATION_RATE)
        if limit is None:
            self._limits.pop(name, None)
        else:
            self._limits[name] = limit
        if name is None:
            return
        if limit is None:
            self._forget(name)
        else:
            self._hosts.begin(name, partial(self._found, name), partial(self._unknown, name))

    def _found(self, name: str, address: str) -> None:
        if name in self._limits:
            self._forget(name)
            self._address_of[name] = address
            self._names_of.setdefault(address, set()).add(name)

    def _unknown(self, name: str) -> None:
        self._limited_log.warn(
            "host",
            "quota of ip %s has no effect: the host does not resolve; use an address",
            cut(name),
        )

    def _forget(self, name: str) -> None:
        address = self._address_of.pop(name, None)
        if address is not None:
            self._names_of[address].discard(name)
            if not self._names_of[address]:
                del self._names_of[address]

    def _limit_of(self, host: str) -> float | None:
        """The lowest limit among all names of the address."""
        names = self._names_of.get(without_zone(host))
        return self._limits.get(None) if names is None else min(self._limits[name] for name in names)

    def pause_ms(self, listener_name: str, *, is_for_brokers: bool) -> float:
        """Pause until the next connection is accepted on this listener, after one was accepted.

        Brokers with a listener of their own never wait for clients.
        """
        now_ms = self._now_ms()
        pause_ms = 0.0
        if not is_for_brokers:
            self._broker.record(1, now_ms)
            pause_ms = self._broker.throttle_ms(max(self._config.max_connection_creation_rate, 1), now_ms)
        limit = self._config.max_connection_creation_rate_of(listener_name)
        if limit is not None:
            rate = self._listeners.setdefault(listener_name, self._new_rate())
            rate.record(1, now_ms)
            pause_ms = max(pause_ms, rate.throttle_ms(max(limit, 1), now_ms))
        return pause_ms

    def refusal_ms(self, host: str) -> float:
        """Delay before a new connection from this address is closed; 0 to serve it."""
        limit = self._limit_of(host)
        if limit is None:
            return 0.0
        rate = self._addresses.pop(host, None) or self._new_rate()
        self._addresses[host] = rate
        if len(self._addresses) > ADDRESSES_MAX:
            del self._addresses[next(iter(self._addresses))]
        now_ms = self._now_ms()
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if throttle_ms:
            rate.record(-1, now_ms)  # it is not served, and so does not count
        return throttle_ms

    def _new_rate(self) -> SampledRate:
        config = self._config
        return SampledRate(config.quota_window_num, config.quota_window_size_seconds * 1_000)
