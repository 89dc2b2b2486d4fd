"""How fast connections may be made: to the broker as a whole, to one listener, and from one address.

Above the broker's or the listener's rate no more are accepted for a while: clients wait in the backlog. An
address above its own rate must not make the others wait: its connection is accepted, left alone for as long
as the rate asks, and closed, so that a client that comes again at once is slowed down too.
"""

from __future__ import annotations

import logging
from functools import partial

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.client_entities import IPS, ClientEntities, EntityPath, Values
from barnabas.core.addresses import without_zone
from barnabas.core.clock import Clock
from barnabas.core.complaints import Complaints
from barnabas.core.host_lookup import HostLookup
from barnabas.core.log_text import cut
from barnabas.quota.keys import CONNECTION_CREATION_RATE, quotas_in
from barnabas.quota.sampled_rate import SampledRate

logger = logging.getLogger(__name__)

ADDRESSES_MAX = 10_000
"""Rates that are remembered; of addresses beyond it, those that came last longest ago are forgotten."""


class ConnectionRates:
    def __init__(
        self, clients: ClientEntities, settings: BrokerConfig, clock: Clock, hosts: HostLookup
    ) -> None:
        self._settings = settings
        self._now_ms = clock.monotonic_ms
        self._hosts = hosts
        self._complaints = Complaints(logger, clock)
        self._limits: dict[str | None, float] = {}
        """By the names of their entities; None is that of all that have none."""
        self._address_of: dict[str, str] = {}
        """Of the names that are known, which may be hosts, or addresses in any spelling."""
        self._names_of: dict[str, set[str]] = {}
        """The same by address."""
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
        self._complaints.warn("host", "the quota of %s has no effect: nobody knows that host", cut(name))

    def _forget(self, name: str) -> None:
        address = self._address_of.pop(name, None)
        if address is not None:
            self._names_of[address].discard(name)
            if not self._names_of[address]:
                del self._names_of[address]

    def _limit_of(self, host: str) -> float | None:
        """Of several names of one address the lowest limit holds."""
        names = self._names_of.get(without_zone(host))
        return self._limits.get(None) if names is None else min(self._limits[name] for name in names)

    def pause_ms(self, listener_name: str, *, is_for_brokers: bool) -> float:
        """A connection was accepted: how long no other is to be, on this listener. Brokers that have a
        listener of their own never wait for clients."""
        now_ms = self._now_ms()
        pause_ms = 0.0
        if not is_for_brokers:
            self._broker.record(1, now_ms)
            pause_ms = self._broker.throttle_ms(max(self._settings.max_connection_creation_rate, 1), now_ms)
        limit = self._settings.max_connection_creation_rate_of(listener_name)
        if limit is not None:
            rate = self._listeners.setdefault(listener_name, self._new_rate())
            rate.record(1, now_ms)
            pause_ms = max(pause_ms, rate.throttle_ms(max(limit, 1), now_ms))
        return pause_ms

    def refusal_ms(self, host: str) -> float:
        """How long to keep a new connection from this address waiting before it is closed; 0 to serve it."""
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
        settings = self._settings
        return SampledRate(settings.quota_window_num, settings.quota_window_size_seconds * 1_000)
