"""Connections per IP address: `max.connections.per.ip`, and the overrides of single hosts.

Overrides name addresses in any spelling, or hosts, which are resolved when the broker starts and when the
config changes. An unknown host in the broker's own configuration fails the start, as in Apache Kafka. One
that was set dynamically limits nothing, and is logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.addresses import without_zone
from barnabas.core.addressing.host_lookup import HostLookup, UnknownHost
from barnabas.core.errors import InvalidConfig
from barnabas.core.reporting.log_text import cut
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger


class ConnectionsPerIp:
    def __init__(self, config: BrokerConfig, hosts: HostLookup, limited_log: RateLimitedLogger) -> None:
        self._config = config
        self._hosts = hosts
        self._limited_log = limited_log
        self._followed: Mapping[str, int] = {}
        """Overrides by host, as of the last lookup."""
        self._addresses: dict[str, str] = {}
        """Addresses of those hosts that resolve."""
        self._by_address: Mapping[str, int] = {}

    async def open(self) -> None:
        """Resolve all hosts, before connections are accepted. Raises INVALID_CONFIG."""
        own = self._config.given_connection_overrides
        for host in self._config.max_connections_per_ip_overrides:
            try:
                self._addresses[host] = await self._hosts.address_of(host)
            except UnknownHost:
                if host in own:
                    raise InvalidConfig(
                        f"max.connections.per.ip.overrides: {host} is not a valid IP or resolvable host"
                    ) from None
        self._follow(self._config.max_connections_per_ip_overrides)

    def max_of(self, peer_host: str) -> int:
        config = self._config
        if config.max_connections_per_ip_overrides is not self._followed:
            self._follow(config.max_connections_per_ip_overrides)
        return self._by_address.get(without_zone(peer_host), config.max_connections_per_ip)

    def _follow(self, overrides: Mapping[str, int]) -> None:
        self._followed = overrides
        self._addresses = {host: known for host, known in self._addresses.items() if host in overrides}
        for host in overrides.keys() - self._addresses.keys():
            self._hosts.begin(host, partial(self._found, host), partial(self._unknown, host))
        self._count()

    def _found(self, host: str, address: str) -> None:
        if host in self._followed:
            self._addresses[host] = address
            self._count()

    def _unknown(self, host: str) -> None:
        self._limited_log.warn(
            "override",
            "max.connections.per.ip.overrides: host %s does not resolve and is not limited",
            cut(host),
        )

    def _count(self) -> None:
        self._by_address = {
            self._addresses[host]: count for host, count in self._followed.items() if host in self._addresses
        }
