"""Settings reach the parts that act on them: a key that is read by nothing is worse than none."""

from __future__ import annotations

import random

import pytest
from tests.support.manual_time import ManualClock

from barnabas.client import Admin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.connections import ConnectionOptions
from barnabas.client.aio.metadata_updates import MetadataOptions
from barnabas.client.config.settings import AdminSettings, ClientSettings, ConsumerSettings, ProducerSettings
from barnabas.client.core.retries import Retries
from barnabas.core.backoff import Backoff
from barnabas.core.errors import NetworkException

GONE = NetworkException("gone")
COMMON = {
    "bootstrap.servers": "127.0.0.1:9092",
    "client.id": "app",
    "metadata.max.age.ms": 1,
    "metadata.recovery.strategy": "none",
    "metadata.recovery.rebootstrap.trigger.ms": 2,
    "reconnect.backoff.ms": 3,
    "reconnect.backoff.max.ms": 4,
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 6,
    "request.timeout.ms": 7,
    "socket.connection.setup.timeout.ms": 8,
    "socket.connection.setup.timeout.max.ms": 9,
    "connections.max.idle.ms": 10,
    "send.buffer.bytes": 11,
    "receive.buffer.bytes": 12,
}


@pytest.mark.parametrize("kind", [ProducerSettings, ConsumerSettings, AdminSettings])
def test_settings_of_connections_and_metadata_are_in_force(kind: type[ClientSettings]) -> None:
    settings = kind.load(COMMON)
    secured = settings.security.secured()
    assert ConnectionOptions.of(settings) == ConnectionOptions(
        client_id="app",
        request_timeout_ms=7,
        setup_timeout_ms=8,
        setup_timeout_max_ms=9,
        backoff=Backoff(3, 4),
        idle_ms_max=10,
        send_buffer_bytes=11,
        receive_buffer_bytes=12,
        security=secured,
    )
    assert MetadataOptions.of(settings) == MetadataOptions(
        age_ms_max=1, backoff=Backoff(5, 6), rebootstraps=False, rebootstrap_trigger_ms=2
    )
    retries = ClusterClient.of(settings, randomness=random.Random(1)).state.retries()
    pauses = [retries.next_pause_ms(GONE) for _ in range(3)]
    assert [round(pause / wanted) for pause, wanted in zip(pauses, (5, 6, 6), strict=True)] == [1, 1, 1]


def test_a_first_pause_is_not_above_the_longest() -> None:
    retries = Retries(ManualClock(), random.Random(1), 10_000, backoff=Backoff(1_000, 10))
    assert retries.next_pause_ms(GONE) <= 12


def test_retries_of_the_admin_client_are_counted() -> None:
    admin = Admin("127.0.0.1:9092", retries=2, retry_backoff_ms=0)
    retries = admin.cluster.state.retries()
    for _ in range(2):
        for _ in range(2):
            retries.next_pause_ms(GONE)
        with pytest.raises(NetworkException):
            retries.next_pause_ms(GONE)
        retries.begin_again()
