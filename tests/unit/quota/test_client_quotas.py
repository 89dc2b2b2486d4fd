"""Client quotas: precedence, sharing and charges."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.support.manual_time import ManualClock

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.client_entities import (
    CLIENTS,
    USERS,
    ClientEntities,
    EntityPart,
    EntityPath,
    Values,
    ValuesChange,
)
from barnabas.core.errors import ThrottlingQuotaExceeded
from barnabas.core.reporting.metrics import Metrics
from barnabas.quota import client_quotas
from barnabas.quota.client_quotas import ClientQuotas
from barnabas.quota.keys import CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE


class Store:
    def __init__(self) -> None:
        self.values: dict[EntityPath, Values] = {}

    async def read_entity(self, path: EntityPath) -> Values | None:
        return self.values.get(path, {})

    async def read_entities(self) -> dict[EntityPath, Values]:
        return dict(self.values)

    async def change_entity(self, path: EntityPath, change: ValuesChange) -> Values:
        self.values[path] = change(self.values.get(path, {}))
        return self.values[path]


class Quotas:
    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.clock = ManualClock()
        self.clients = ClientEntities(Store())
        self.metrics = Metrics()
        self.quotas = ClientQuotas(self.clients, BrokerConfig.load(settings or {}), self.clock, self.metrics)

    async def set(self, path: EntityPath, **values: str) -> None:
        await self.clients.change(path, lambda _: values)


def entity(user: str | None = "", client: str | None = "") -> EntityPath:
    """The empty name stands for none."""
    parts = (EntityPart(USERS, user), EntityPart(CLIENTS, client))
    return tuple(part for part in parts if part.name != "")


LEVELS = [
    (entity("alice", "app"), ("alice", "app")),
    (entity("alice", None), ("alice", "app")),
    (entity("alice"), ("alice", None)),
    (entity(None, "app"), ("alice", "app")),
    (entity(None, None), ("alice", "app")),
    (entity(None), ("alice", None)),
    (entity(client="app"), (None, "app")),
    (entity(client=None), (None, "app")),
]
"""Most specific first, with the sharers of each meter."""


@pytest.mark.parametrize("first", range(len(LEVELS)))
async def test_the_most_specific_quota_counts(first: int) -> None:
    world = Quotas()
    for place in range(len(LEVELS) - 1, first - 1, -1):
        path, sharers = LEVELS[place]
        await world.set(path, producer_byte_rate=str(1_000 + place))
        found = world.quotas.limit(PRODUCER_BYTE_RATE, "alice", "app")
        assert found == (1_000 + place, (PRODUCER_BYTE_RATE, *sharers))
    assert world.quotas.limit("consumer_byte_rate", "alice", "app") is None


async def test_where_no_quota_is_set_nothing_is_limited() -> None:
    world = Quotas()
    assert not world.quotas.is_limiting
    await world.set(entity("alice"), **{"SCRAM-SHA-256": "salt=..."})
    assert not world.quotas.is_limiting, "credentials are no quota"
    await world.set(entity("alice"), producer_byte_rate="10")
    assert world.quotas.is_limiting
    assert world.quotas.charge_produce("bob", "app", 1_000_000) == 0
    await world.set(entity("alice"))
    assert not world.quotas.is_limiting


async def test_a_producer_above_its_quota_waits_until_it_is_not() -> None:
    world = Quotas()
    await world.set(entity("alice"), producer_byte_rate="1000")
    assert world.quotas.charge_produce("alice", "app", 10_000) == 0
    throttle_ms = world.quotas.charge_produce("alice", "other", 5_000)
    assert throttle_ms == 5_000, "all clients of the user share its quota"
    assert world.quotas.charge_produce("bob", "app", 50_000) == 0
    world.clock.advance(throttle_ms + 6_000)
    assert world.quotas.charge_produce("alice", "app", 100) == 0


async def test_a_consumer_that_is_sent_nothing_pays_nothing() -> None:
    world = Quotas()
    await world.set(entity(client="app"), consumer_byte_rate="1000")
    assert world.quotas.fetch_bytes_max("alice", "app") == 10_000
    assert world.quotas.charge_fetch("alice", "app", 10_000) == 0
    assert world.quotas.charge_fetch("alice", "app", 10_000) == 10_000
    assert world.quotas.charge_fetch("alice", "app", 10_000) == 10_000, "as if nothing had been asked"
    world.clock.advance(11_000)
    assert world.quotas.charge_fetch("alice", "app", 10_000) == 0
    assert world.quotas.fetch_bytes_max("alice", None) == float("inf")


async def test_time_is_throttled_for_a_window_at_most() -> None:
    world = Quotas()
    await world.set(entity("alice"), request_percentage="1")
    assert world.quotas.charge_time("alice", "app", 50) == 0
    assert world.quotas.charge_time("alice", "app", 60_000) == 1_000


async def test_changes_are_refused_to_those_who_know_the_error_and_throttled_for_others() -> None:
    world = Quotas()
    await world.set(entity("alice"), controller_mutation_rate="1")
    charge = world.quotas.charge_mutations
    assert charge("alice", "app", 11, is_strict=True) == 0, "the burst"
    assert charge("alice", "app", 5, is_strict=True) == 0, "one change may overdraw"
    with pytest.raises(ThrottlingQuotaExceeded):
        charge("alice", "app", 1, is_strict=True)
    assert world.quotas.mutation_wait_ms("alice", "app") == 5_000
    assert charge("alice", "app", 1, is_strict=False) == 6_000
    world.clock.advance(6_000)
    assert charge("alice", "app", 1, is_strict=True) == 0
    assert charge("bob", "app", 1_000, is_strict=True) == 0


async def test_what_is_no_quota_in_the_store_limits_nothing() -> None:
    world = Quotas()
    for value in ("nonsense", "0", "-1", "nan"):
        await world.set(entity("alice"), producer_byte_rate=value)
        assert world.quotas.charge_produce("alice", "app", 1 << 40) == 0


async def test_invented_client_ids_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "METERS_MAX", 100)
    world = Quotas()
    await world.set(entity(client=None), producer_byte_rate="1000", controller_mutation_rate="1")
    for number in range(500):
        world.quotas.charge_produce("alice", f"client-{number}", 10)
        world.quotas.charge_mutations("alice", f"client-{number}", 1, is_strict=True)
    rates = world.quotas._rates[PRODUCER_BYTE_RATE]
    sizes = [len(meters) for meters in (rates, world.quotas._buckets, world.quotas._found)]
    assert sizes == [100, 100, 100]


async def test_long_client_ids_are_told_apart_and_not_kept() -> None:
    world = Quotas()
    await world.set(entity(client=None), producer_byte_rate="1000")
    long = ["x" * 32_000 + end for end in ("1", "2")]
    assert world.quotas.charge_produce("alice", long[0], 11_000) > 0
    assert world.quotas.charge_produce("alice", long[0], 0) > 0
    assert world.quotas.charge_produce("alice", long[1], 100) == 0
    known = [*world.quotas._rates[PRODUCER_BYTE_RATE], *world.quotas._found]
    assert max(len(part or "") for sharers in known for part in sharers) < 300
    await world.set(entity(client=long[1]), producer_byte_rate="5")
    assert world.quotas.charge_produce("alice", long[1], 100) > 0, "its own quota is found"


async def test_who_invents_client_ids_is_not_forgiven_another_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "METERS_MAX", 100)
    world = Quotas()
    await world.set(entity("alice"), producer_byte_rate="1000")
    await world.set(entity("alice", None), request_percentage="50")
    assert world.quotas.charge_produce("alice", "app", 20_000) == 10_000
    for number in range(200):
        world.quotas.charge_time("alice", f"client-{number}", 1)
    assert world.quotas.charge_produce("alice", "app", 0) == 10_000


async def test_what_is_throttled_is_counted() -> None:
    world = Quotas()
    await world.set(entity("alice"), producer_byte_rate="1", controller_mutation_rate="1")
    world.quotas.charge_produce("alice", "app", 1_000)
    world.quotas.charge_mutations("alice", "app", 1_000, is_strict=False)
    counted = {
        key: world.metrics.counter("kafka_throttled_requests_total", "", quota=key).value
        for key in (PRODUCER_BYTE_RATE, CONTROLLER_MUTATION_RATE)
    }
    assert counted == {PRODUCER_BYTE_RATE: 1, CONTROLLER_MUTATION_RATE: 1}


@pytest.mark.parametrize("limit", ["1", "1e-9", "5e-324"])
async def test_no_wait_is_longer_than_an_answer_has_room_to_say(limit: str) -> None:
    quotas = Quotas()
    keys = (PRODUCER_BYTE_RATE, "consumer_byte_rate", "request_percentage", CONTROLLER_MUTATION_RATE)
    await quotas.set(entity("alice"), **dict.fromkeys(keys, limit))
    charge = quotas.quotas
    assert 0 < charge.charge_produce("alice", "app", 100_000_000) < 1 << 31
    charge.charge_fetch("alice", "app", 100_000_000)
    assert 0 < charge.charge_fetch("alice", "app", 100_000_000) < 1 << 31
    assert 0 < charge.charge_time("alice", "app", 100_000.0) <= 1_000
    assert 0 < charge.charge_mutations("alice", "app", 100_000_000, is_strict=False) < 1 << 31
    assert 0 < charge.mutation_wait_ms("alice", "app") < 1 << 31


async def test_a_batch_that_no_silence_makes_room_for_is_sent_all_the_same() -> None:
    quotas = Quotas()
    await quotas.set(entity("alice"), consumer_byte_rate="50000")
    charge_fetch, batch_bytes = quotas.quotas.charge_fetch, 1_000_000
    assert quotas.quotas.fetch_bytes_max("alice", "app") < batch_bytes
    assert charge_fetch("alice", "app", batch_bytes) == 0
    wait_ms = charge_fetch("alice", "app", batch_bytes)
    assert wait_ms > 0
    quotas.clock.advance(wait_ms)
    assert charge_fetch("alice", "app", 1) == 0


async def test_credentials_of_one_do_not_forgive_what_another_owes() -> None:
    quotas = Quotas()
    await quotas.set(entity("alice"), controller_mutation_rate="1")
    quotas.quotas.charge_mutations("alice", "app", 1_000, is_strict=True)
    owed_ms = quotas.quotas.mutation_wait_ms("alice", "app")
    await quotas.set(entity("bob"), **{"SCRAM-SHA-256": "salt=1"})
    assert quotas.quotas.mutation_wait_ms("alice", "app") == owed_ms > 0
