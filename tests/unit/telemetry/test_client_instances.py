"""Client instances: demands, throttling, errors, bounds and their end."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest

from barnabas.core.bounds.kept_memory import MemoryOwner
from barnabas.core.errors import (
    InvalidRecord,
    InvalidRequest,
    KafkaError,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.core.limits import TELEMETRY_CLIENTS_PER_CONNECTION_MAX, TELEMETRY_SERIES_PER_CLIENT_MAX
from barnabas.core.reporting.metrics import Metrics, render_prometheus
from barnabas.core.steps import run_to_end
from barnabas.records.compression import CODECS, compress
from barnabas.telemetry import client_instances
from barnabas.telemetry.client_instances import ClientInstance, ClientInstances, Push, Reporter
from barnabas.telemetry.subscriptions import Subscriptions
from tests.support.manual_time import ManualClock
from tests.unit.telemetry.pushes import gauge, increase, metrics_data

BYTES_MAX = 100_000


class Broker:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.subscriptions = Subscriptions()
        self.instances = ClientInstances(self.subscriptions, self.clock, random.Random(1), self.metrics)
        self.closing: dict[str, list[Callable[[], None]]] = {}
        self.subscriptions.put("all", {"metrics": "*", "interval.ms": "1000"})

    def reporter(self, connection: str = "c1", principal: str = "alice", client_id: str = "me") -> Reporter:
        owner = MemoryOwner(principal, connection)
        actions = self.closing.setdefault(connection, [])
        return Reporter(owner, client_id, "192.0.2.1", "5000", ("librdkafka", "2.15"), actions.append)

    def ask(self, instance_id: Uuid = ZERO_UUID, reporter: Reporter | None = None) -> ClientInstance:
        return run_to_end(self.instances.subscribe(instance_id, reporter or self.reporter()))

    def push(
        self,
        instance: ClientInstance,
        *metrics: bytes,
        codec: int = 0,
        terminating: bool = False,
        subscription_id: int | None = None,
        reporter: Reporter | None = None,
        data: bytes | None = None,
    ) -> None:
        wanted = instance.demand.subscription_id if subscription_id is None else subscription_id
        content = metrics_data(*metrics) if data is None else data
        sent = compress(CODECS[codec], content) if codec in CODECS else content
        push = Push(instance.instance_id, wanted, terminating, codec, sent)
        run_to_end(self.instances.push(push, reporter or self.reporter(), BYTES_MAX))

    def close(self, connection: str) -> None:
        for action in self.closing.pop(connection):
            action()

    def page(self) -> str:
        return render_prometheus(self.metrics)


@pytest.fixture
def broker() -> Broker:
    return Broker()


def values(instance: ClientInstance) -> dict[str, float]:
    return {name: value for (name, _), value in instance.series.items()}


# --- demands ---


def test_a_client_gets_an_id_and_keeps_it(broker: Broker) -> None:
    first = broker.ask()
    assert first.instance_id != ZERO_UUID
    broker.clock.advance(ms=1_000)
    assert broker.ask(first.instance_id) is first
    assert (first.demand.metrics, first.demand.interval_ms) == (("*",), 1_000)


def test_matching_subscriptions_are_joined(broker: Broker) -> None:
    broker.subscriptions.put("all", {})
    broker.subscriptions.put("a", {"metrics": "x,y", "interval.ms": "5000"})
    broker.subscriptions.put("b", {"metrics": "y,z", "interval.ms": "4000", "match": "client_id=m."})
    broker.subscriptions.put("c", {"metrics": "q", "interval.ms": "100", "match": "client_id=m"})
    demand = broker.ask().demand
    assert (demand.metrics, demand.interval_ms) == (("x", "y", "z"), 4_000)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("client_software_name=lib.*", True),
        ("client_software_version=1\\..*", False),
        ("client_source_address=192\\.0\\.2\\.\\d", True),
        ("client_source_port=5000", True),
        ("client_source_port=500", False),
        ("client_id=me,client_source_port=1", False),
        ("client_instance_id=.{22}", True),
    ],
)
def test_all_patterns_must_match_whole_attributes(broker: Broker, pattern: str, matches: bool) -> None:
    broker.subscriptions.put("all", {"metrics": "*", "match": pattern})
    assert bool(broker.ask().demand.metrics) == matches


def test_every_broker_gives_a_client_the_same_subscription_id(broker: Broker) -> None:
    instance = broker.ask()
    other = Broker()
    assert other.ask(instance.instance_id).demand.subscription_id == instance.demand.subscription_id
    broker.ask()
    assert len({each.demand.subscription_id for each in broker.instances}) == 2


def test_a_changed_subscription_is_known_at_once(broker: Broker) -> None:
    instance = broker.ask()
    old = instance.demand.subscription_id
    broker.push(instance, gauge("x", 1.0))
    broker.subscriptions.put("all", {"metrics": "x", "interval.ms": "1000"})
    with pytest.raises(UnknownSubscriptionId):
        broker.push(instance, gauge("x", 2.0), subscription_id=old)
    assert broker.ask(instance.instance_id).demand.metrics == ("x",)
    broker.clock.advance(ms=1_000)
    broker.push(instance, gauge("x", 3.0))
    assert values(instance) == {"x": 3.0}


# --- throttling and errors ---


def test_a_question_before_its_time_is_throttled(broker: Broker) -> None:
    instance = broker.ask()
    with pytest.raises(ThrottlingQuotaExceeded):
        broker.ask(instance.instance_id)
    broker.clock.advance(ms=1_000)
    broker.ask(instance.instance_id)


def test_a_push_before_its_time_is_throttled_but_the_last(broker: Broker) -> None:
    instance = broker.ask()
    broker.clock.advance(ms=1)
    broker.push(instance, gauge("x", 1.0))
    with pytest.raises(ThrottlingQuotaExceeded):
        broker.push(instance, gauge("x", 2.0))
    broker.push(instance, gauge("x", 3.0), terminating=True)
    assert values(instance) == {"x": 3.0}
    with pytest.raises(InvalidRequest):
        broker.push(instance, gauge("x", 4.0), terminating=True)
    assert "kafka_client_metrics_throttle_total 1\n" in broker.page()


@pytest.mark.parametrize("error", [UnknownSubscriptionId, UnsupportedCompressionType])
def test_after_these_errors_a_client_may_ask_at_once(broker: Broker, error: type[KafkaError]) -> None:
    instance = broker.ask()
    codec, subscription_id = (5, None) if error is UnsupportedCompressionType else (0, 7)
    with pytest.raises(error):
        broker.push(instance, codec=codec, subscription_id=subscription_id)
    broker.ask(instance.instance_id)
    unknown = int(error is UnknownSubscriptionId)
    assert f"kafka_client_metrics_unknown_subscription_request_total {unknown}\n" in broker.page()
    with pytest.raises(ThrottlingQuotaExceeded):
        broker.ask(instance.instance_id)


@pytest.mark.parametrize("reserved", [ZERO_UUID, Uuid(bytes(15) + b"\x01")])
def test_reserved_ids_push_nothing(broker: Broker, reserved: Uuid) -> None:
    push = Push(reserved, 0, False, 0, b"")
    with pytest.raises(InvalidRequest):
        run_to_end(broker.instances.push(push, broker.reporter(), BYTES_MAX))
    assert not len(broker.instances)


def test_a_push_is_bounded_before_and_after_it_is_inflated(broker: Broker) -> None:
    instance = broker.ask()
    with pytest.raises(TelemetryTooLarge):
        broker.push(instance, data=bytes(BYTES_MAX + 1))
    broker.clock.advance(ms=1_000)
    with pytest.raises(TelemetryTooLarge):
        broker.push(instance, data=bytes(BYTES_MAX + 1), codec=4)


@pytest.mark.parametrize("codec", range(5))
def test_every_codec_is_read(broker: Broker, codec: int) -> None:
    instance = broker.ask()
    broker.push(instance, gauge("x", 1.5), codec=codec)
    assert values(instance) == {"x": 1.5}


@pytest.mark.parametrize("codec", [0, 4])
def test_a_malformed_push_changes_nothing(broker: Broker, codec: int) -> None:
    instance = broker.ask()
    broker.push(instance, gauge("x", 1.0))
    broker.clock.advance(ms=1_000)
    metrics = b"no frame" if codec else metrics_data(gauge("x", 2.0)) + b"\xff"
    push = Push(instance.instance_id, instance.demand.subscription_id, False, codec, metrics)
    with pytest.raises(InvalidRecord):
        run_to_end(broker.instances.push(push, broker.reporter(), BYTES_MAX))
    assert values(instance) == {"x": 1.0}
    assert "kafka_client_metrics_plugin_error_total 1\n" in broker.page()


# --- what is kept ---


def test_increases_are_added_up_and_shown(broker: Broker) -> None:
    instance = broker.ask()
    for _ in range(3):
        broker.push(instance, increase("sent", 5), gauge("rate", 2.5, topic="t"))
        broker.clock.advance(ms=1_000)
    assert values(instance) == {"sent": 15, "rate": 2.5}
    shown = f'client_id="me",client_instance_id="{instance.instance_id}",client_software="librdkafka 2.15"'
    assert f'barnabas_client_reported{{attributes="",{shown},metric="sent"}} 15\n' in broker.page()
    assert "kafka_client_metrics_instance_count 1\n" in broker.page()
    assert "kafka_client_metrics_plugin_export_total 3\n" in broker.page()
    assert f'barnabas_client_reported{{attributes="topic=t",{shown},metric="rate"}} 2.5\n' in broker.page()


def test_the_series_of_a_client_are_bounded(broker: Broker) -> None:
    instance = broker.ask()
    extra = 10
    names = [gauge(f"m{number}", 1.0) for number in range(TELEMETRY_SERIES_PER_CLIENT_MAX + extra)]
    broker.push(instance, *names, codec=4)
    broker.clock.advance(ms=1_000)
    broker.push(instance, gauge("another", 1.0), gauge("m0", 2.0))
    assert len(instance.series) == TELEMETRY_SERIES_PER_CLIENT_MAX
    assert values(instance)["m0"] == 2.0
    assert f"barnabas_client_metrics_dropped_total {extra + 1}\n" in broker.page()


def test_the_fields_of_a_push_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred compressed bytes are half a million fields."""
    monkeypatch.setattr(client_instances, "TELEMETRY_FIELDS_PER_PUSH_MAX", 100)
    instance = broker.ask()
    unknown = b"\x0a\x00" * 100
    broker.push(instance, gauge("before", 1.0), unknown, gauge("behind", 2.0), codec=4)
    assert values(instance) == {"before": 1.0}
    assert "barnabas_client_metrics_dropped_total 1\n" in broker.page()


def test_the_clients_of_a_connection_are_bounded(broker: Broker) -> None:
    for _ in range(TELEMETRY_CLIENTS_PER_CONNECTION_MAX):
        broker.ask()
    with pytest.raises(ThrottlingQuotaExceeded):
        broker.ask()
    broker.ask(reporter=broker.reporter("c2"))


def test_the_memory_of_a_connection_is_bounded(broker: Broker) -> None:
    """Long names fill the account before the series are too many."""
    asked = 0
    with suppress(ThrottlingQuotaExceeded):
        for _ in range(TELEMETRY_CLIENTS_PER_CONNECTION_MAX):
            instance = broker.ask()
            asked += 1
            for part in range(20):
                names = [gauge(f"m{part}.{each}", 1.0, a="v" * 256, b="v" * 256) for each in range(90)]
                broker.push(instance, *names)
                broker.clock.advance(ms=1_000)
    assert 1 < asked < TELEMETRY_CLIENTS_PER_CONNECTION_MAX
    assert broker.instances.memory.kept_bytes <= broker.instances.memory.limits.connection_bytes_max
    assert broker.instances.memory.kept_bytes > broker.instances.memory.limits.connection_bytes_max // 2


def test_wide_characters_count_with_their_memory(broker: Broker) -> None:
    instance = broker.ask()
    wide = {f"a{number}": "\N{GRINNING FACE}" * 256 for number in range(10)}
    broker.push(instance, gauge("x", 1.0, **wide))
    (((_, labels), _),) = instance.series.items()
    assert broker.instances.memory.kept_bytes > sum(sys.getsizeof(text) for _, text in labels)


def test_principals_do_not_share_instances(broker: Broker) -> None:
    mine = broker.ask()
    broker.push(mine, gauge("x", 1.0))
    theirs = broker.ask(mine.instance_id, broker.reporter("c2", principal="mallory"))
    assert theirs is not mine
    broker.push(theirs, gauge("x", 9.0), reporter=broker.reporter("c2", principal="mallory"))
    assert values(mine) == {"x": 1.0}


# --- the end of an instance ---


def test_an_instance_ends_with_its_connection(broker: Broker) -> None:
    broker.push(broker.ask(), gauge("x", 1.0))
    broker.close("c1")
    assert not len(broker.instances)
    assert not broker.instances.memory.kept_bytes


def test_an_instance_moves_to_a_new_connection(broker: Broker) -> None:
    instance = broker.ask()
    broker.push(instance, gauge("x", 1.0))
    broker.clock.advance(ms=1_000)
    broker.push(instance, gauge("x", 2.0), reporter=broker.reporter("c2"))
    broker.close("c1")
    assert len(broker.instances) == 1
    broker.close("c2")
    assert not broker.instances.memory.kept_bytes


def test_a_broker_that_does_not_know_a_client_takes_its_push(broker: Broker) -> None:
    """Ids follow from the subscriptions, so a push needs no question at this broker."""
    elsewhere = Broker().ask()
    broker.push(elsewhere, gauge("x", 1.0))
    (instance,) = broker.instances
    assert values(instance) == {"x": 1.0}


def test_an_instance_that_cannot_be_forgotten_does_not_keep_the_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = broker.ask(), broker.ask()
    forgotten: list[object] = []

    def forget(key: object, instance: ClientInstance) -> None:
        if instance is first:
            raise OSError("planned")
        forgotten.append(instance)

    monkeypatch.setattr(broker.instances, "_forget", forget)
    broker.clock.advance(3_600_000)
    broker.instances.sweep()
    assert forgotten == [second]


def test_a_silent_instance_expires(broker: Broker) -> None:
    broker.ask()
    broker.clock.advance(ms=60_000)
    broker.instances.sweep()
    assert len(broker.instances) == 1
    broker.clock.advance(ms=1)
    broker.instances.sweep()
    assert not len(broker.instances)
    broker.ask()
    assert len(broker.closing["c1"]) == 1


def test_a_removed_subscription_asks_for_nothing(broker: Broker) -> None:
    broker.subscriptions.put("all", {})
    version = broker.subscriptions.version
    broker.subscriptions.put("unknown", {})
    assert broker.subscriptions.version == version
    demand = broker.ask().demand
    assert (demand.metrics, demand.interval_ms) == ((), 300_000)
