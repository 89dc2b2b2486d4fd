"""How fast connections may be made: to the broker as a whole, to one listener, and from one address.

Above the broker's or the listener's rate no more are accepted for a while: clients wait in the backlog. An
address above its own rate must not make the others wait: its connection is accepted, left alone for as long
as the rate asks, and closed, so that a client that comes again at once is slowed down too.
"""

from __future__ import annotations

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.client_entities import IPS, ClientEntities, EntityPath, Values
from barnabas.core.clock import Clock
from barnabas.quota.keys import CONNECTION_CREATION_RATE, quotas_in
from barnabas.quota.sampled_rate import SampledRate

ADDRESSES_MAX = 10_000
"""Rates that are remembered; of addresses beyond it, those that came last longest ago are forgotten."""


class ConnectionRates:
    def __init__(self, clients: ClientEntities, settings: BrokerConfig, clock: Clock) -> None:
        self._settings = settings
        self._now_ms = clock.monotonic_ms
        self._limits: dict[str | None, float] = {}
        """Of addresses; None is that of all others."""
        self._addresses: dict[str, SampledRate] = {}
        self._broker = self._new_rate()
        self._listeners: dict[str, SampledRate] = {}
        clients.on_change(self._put)

    def _put(self, path: EntityPath, values: Values) -> None:
        if path[0].type != IPS:
            return
        limit = quotas_in(values).get(CONNECTION_CREATION_RATE)
        if limit is None:
            self._limits.pop(path[0].name, None)
        else:
            self._limits[path[0].name] = limit

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
        limit = self._limits.get(host, self._limits.get(None))
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
