"""Connection creation rates."""

from __future__ import annotations

import pytest
from tests.support.manual_time import ManualClock
from tests.unit.quota.test_client_quotas import Store

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.client_entities import IPS, ClientEntities, EntityPart
from barnabas.core.addressing.host_lookup import HostLookup
from barnabas.core.scheduler import InlineBackground
from barnabas.quota import connection_rates
from barnabas.quota.connection_rates import ConnectionRates


class Rates:
    def __init__(self, **settings: str) -> None:
        self.clock = ManualClock()
        self.known: dict[str, str] = {}
        self.clients = ClientEntities(Store())
        given = {key.replace("_", "."): value for key, value in settings.items()}
        hosts = HostLookup(self._resolve, InlineBackground())
        self.rates = ConnectionRates(self.clients, BrokerConfig.load(given), self.clock, hosts)

    def _resolve(self, host: str) -> str:
        if host not in self.known:
            raise OSError(host)
        return self.known[host]

    def pause_ms(self, listener_name: str = "CLIENTS", *, is_for_brokers: bool = False) -> float:
        return self.rates.pause_ms(listener_name, is_for_brokers=is_for_brokers)

    async def limit(self, address: str | None, rate: str) -> None:
        values = {"connection_creation_rate": rate} if rate else {}
        await self.clients.change((EntityPart(IPS, address),), lambda _: values)


def test_without_limits_no_client_waits() -> None:
    world = Rates()
    assert [world.rates.refusal_ms("192.0.2.1") for _ in range(1_000)] == [0] * 1_000
    assert [world.pause_ms() for _ in range(1_000)] == [0] * 1_000


def test_a_broker_above_its_rate_rests_until_it_is_not() -> None:
    world = Rates(max_connection_creation_rate="10")
    assert [world.pause_ms() for _ in range(100)] == [0] * 100
    pause_ms = world.pause_ms()
    assert 0 < pause_ms <= 200
    world.clock.advance(11_000)
    assert world.pause_ms() == 0


def test_brokers_with_a_listener_of_their_own_do_not_wait_for_clients() -> None:
    world = Rates(max_connection_creation_rate="10")
    assert any(world.pause_ms() for _ in range(200))
    assert [world.pause_ms("BROKERS", is_for_brokers=True) for _ in range(500)] == [0] * 500


def test_a_listener_has_a_rate_of_its_own() -> None:
    world = Rates(listener_name_clients_max_connection_creation_rate="10")
    assert [world.pause_ms() for _ in range(100)] == [0] * 100
    assert 0 < world.pause_ms() <= 200
    assert [world.pause_ms("OTHERS") for _ in range(500)] == [0] * 500


async def test_an_address_above_its_rate_is_refused_and_others_are_not() -> None:
    world = Rates()
    await world.limit("192.0.2.1", "1")
    assert [world.rates.refusal_ms("192.0.2.1") for _ in range(10)] == [0] * 10
    refusals = [world.rates.refusal_ms("192.0.2.1") for _ in range(5)]
    assert refusals == pytest.approx([1_000] * 5), "what is refused does not count"
    assert world.rates.refusal_ms("192.0.2.2") == 0
    world.clock.advance(11_000)
    assert world.rates.refusal_ms("192.0.2.1") == 0
    await world.limit("192.0.2.1", "")
    assert [world.rates.refusal_ms("192.0.2.1") for _ in range(50)] == [0] * 50


async def test_the_default_is_for_each_address_by_itself() -> None:
    world = Rates()
    await world.limit(None, "1")
    await world.limit("192.0.2.1", "100")
    for address in ("192.0.2.2", "192.0.2.3"):
        assert [world.rates.refusal_ms(address) for _ in range(10)] == [0] * 10
        assert world.rates.refusal_ms(address) > 0
    assert [world.rates.refusal_ms("192.0.2.1") for _ in range(50)] == [0] * 50


async def test_many_addresses_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_rates, "ADDRESSES_MAX", 10)
    world = Rates()
    await world.limit(None, "1")
    for number in range(100):
        world.rates.refusal_ms(f"192.0.2.{number}")
    assert len(world.rates._addresses) == 10


@pytest.mark.parametrize(
    ("written", "peer"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8:0:0:0:0:0:0A", "2001:db8::a"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("192.000.002.001", "192.0.2.1"),
        ("fe80:0:0:0:0:0:0:1", "fe80::1%eth0"),
        ("host.example", "192.0.2.1"),
    ],
)
async def test_an_address_is_limited_however_it_is_written(written: str, peer: str) -> None:
    world = Rates()
    world.known["host.example"] = "192.0.2.1"
    await world.limit(written, "1")
    assert [world.rates.refusal_ms(peer) for _ in range(10)] == [0] * 10
    assert world.rates.refusal_ms(peer) > 0
    await world.limit(written, "")
    assert world.rates.refusal_ms(peer) == 0


async def test_of_two_spellings_the_lower_limit_holds() -> None:
    world = Rates()
    await world.limit("0:0:0:0:0:0:0:1", "100")
    await world.limit("::1", "1")
    await world.limit("0:0::1", "50")
    assert any(world.rates.refusal_ms("::1") for _ in range(11))
    await world.limit("::1", "")
    world.clock.advance(60_000)
    assert not any(world.rates.refusal_ms("::1") for _ in range(400))
    assert any(world.rates.refusal_ms("::1") for _ in range(200))


async def test_an_unknown_host_is_reported_and_limits_no_client(caplog: pytest.LogCaptureFixture) -> None:
    world = Rates()
    await world.limit("host.example", "1")
    assert caplog.messages == [
        "quota of ip host.example has no effect: the host does not resolve; use an address"
    ]
    assert [world.rates.refusal_ms("192.0.2.1") for _ in range(50)] == [0] * 50
