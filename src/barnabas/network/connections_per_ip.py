"""How many connections one address may have: `max.connections.per.ip`, and the overrides of single hosts.

Overrides name addresses in any spelling, or hosts, which are looked up when the broker starts and when the
setting changes. A host of the broker's own settings that nobody knows ends the start, as in Apache Kafka; one
that was set while brokers run limits nobody, and is told to the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addresses import without_zone
from barnabas.core.complaints import Complaints
from barnabas.core.errors import InvalidConfig
from barnabas.core.host_lookup import HostLookup, UnknownHost
from barnabas.core.log_text import cut
from barnabas.core.waiting import Runner


class ConnectionsPerIp:
    def __init__(self, settings: BrokerConfig, hosts: HostLookup, complaints: Complaints) -> None:
        self._settings = settings
        self._hosts = hosts
        self._complaints = complaints
        self._followed: Mapping[str, int] = {}
        """The overrides by host, as they were when the addresses were looked up."""
        self._addresses: dict[str, str] = {}
        """Of the hosts that are named there, as far as they are known."""
        self._by_address: Mapping[str, int] = {}

    async def open(self, runner: Runner) -> None:
        """Before anybody is accepted: look all hosts up. Raises INVALID_CONFIG."""
        own = self._settings.given_connection_overrides
        for host in self._settings.max_connections_per_ip_overrides:
            try:
                self._addresses[host] = await self._hosts.address_of(host, runner)
            except UnknownHost:
                if host in own:
                    raise InvalidConfig(
                        f"max.connections.per.ip.overrides: {host} is not a valid IP or resolvable host"
                    ) from None
        self._follow(self._settings.max_connections_per_ip_overrides)

    def max_of(self, peer_host: str) -> int:
        settings = self._settings
        if settings.max_connections_per_ip_overrides is not self._followed:
            self._follow(settings.max_connections_per_ip_overrides)
        return self._by_address.get(without_zone(peer_host), settings.max_connections_per_ip)

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
        self._complaints.warn(
            "override", "max.connections.per.ip.overrides: nobody knows %s, which is not limited", cut(host)
        )

    def _count(self) -> None:
        self._by_address = {
            self._addresses[host]: count for host, count in self._followed.items() if host in self._addresses
        }
