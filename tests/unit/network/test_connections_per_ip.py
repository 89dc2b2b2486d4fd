"""Limits of single hosts, however they are named."""

from __future__ import annotations

import logging

import pytest
from tests.support.manual_time import ManualClock

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.host_lookup import HOST_NAME_CHARS_MAX, HostLookup
from barnabas.core.errors import InvalidConfig
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.core.scheduler import InlineBackground
from barnabas.network.connections_per_ip import ConnectionsPerIp

OVERRIDES = "max.connections.per.ip.overrides"


class World:
    def __init__(self, overrides: str = "") -> None:
        self.known = {"proxy.example": "192.0.2.1", "new.example": "fe80::1%eth0"}
        self.asked: list[str] = []
        self.settings = BrokerConfig.load({"max.connections.per.ip": "100", OVERRIDES: overrides})
        limited_log = RateLimitedLogger(logging.getLogger("network"), ManualClock())
        hosts = HostLookup(self._resolve, InlineBackground())
        self.per_ip = ConnectionsPerIp(self.settings, hosts, limited_log)

    def _resolve(self, host: str) -> str:
        self.asked.append(host)
        if host not in self.known:
            raise OSError(host)
        return self.known[host]

    def set(self, overrides: str) -> None:
        """As the store of settings does while the broker runs."""
        self.settings.put({**self.settings.values, OVERRIDES: overrides})


async def test_addresses_and_names_are_limited() -> None:
    world = World("proxy.example:1,0:0:0:0:0:0:0:1:2,[fe80::1]:3,::ffff:192.0.2.9:4")
    await world.per_ip.open()
    peers = ("192.0.2.1", "::1", "fe80::1%eth0", "192.0.2.9", "192.0.2.77")
    assert [world.per_ip.max_of(peer) for peer in peers] == [1, 2, 3, 4, 100]
    assert world.asked == ["proxy.example"], "a name is looked up once, and an address is not"


@pytest.mark.parametrize("host", ["unknown.example", "x" * (HOST_NAME_CHARS_MAX + 1)])
async def test_an_unknown_host_ends_the_start(host: str) -> None:
    world = World(f"{host}:1")
    with pytest.raises(InvalidConfig, match=f"overrides: {host} is not a valid IP or resolvable host"):
        await world.per_ip.open()


async def test_one_that_was_set_since_is_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World("192.0.2.1:1")
    world.set("unknown.example:1,192.0.2.2:2")
    await world.per_ip.open()
    assert world.per_ip.max_of("192.0.2.2") == 2
    assert caplog.messages == [f"{OVERRIDES}: host unknown.example does not resolve and is not limited"]


async def test_a_change_is_followed() -> None:
    world = World("proxy.example:1")
    await world.per_ip.open()
    world.set("new.example:2,proxy.example:3")
    assert [world.per_ip.max_of(peer) for peer in ("fe80::1%eth1", "192.0.2.1")] == [2, 3]
    world.set("")
    assert [world.per_ip.max_of(peer) for peer in ("fe80::1%eth1", "192.0.2.1")] == [100, 100]
    assert world.asked == ["proxy.example", "new.example"]
