"""Our own clients, and brokers among each other, on listeners that speak TLS and ask for certificates."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner

from barnabas.cli.main import cli
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.security.settings import SecuritySettings
from barnabas.cluster.stores.topics import create_topic
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import SystemClock
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.node.broker import Broker
from barnabas.testing.broker import run_broker
from tests.scenario.replication.support import eventually
from tests.support.embedded_cluster import shared_store
from tests.support.plain_producer import OutgoingRecord, Producer

T0 = TopicPartition("t", 0)


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, str]:
    """Certificates of a trusted authority: the settings of a broker, and of a client."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "own.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }


LISTENER = {
    "listeners": "SSL://127.0.0.1:0",
    "security.inter.broker.protocol": "SSL",
    "ssl.client.auth": "required",
}


def test_commands_show_their_certificate(stores: dict[str, str], tmp_path: Path) -> None:
    given = {"security.protocol": "SSL", **stores}
    file = tmp_path / "client.properties"
    with run_broker({**LISTENER, **stores}) as broker:
        for settings, code in ((given, 0), ({**given, "ssl.keystore.location": ""}, 3)):
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            options = ["--bootstrap", broker.bootstrap, "--command-config", str(file)]
            result = CliRunner().invoke(cli, [*options, "topic", "list"])
            assert result.exit_code == code, result.output


def end_of(broker: Broker) -> int:
    assert broker._replicas is not None
    partition = broker._replicas.find(T0)
    return -1 if partition is None else partition.log.log_end_offset


@asynccontextmanager
async def client_of(brokers: list[Broker], stores: dict[str, str]) -> AsyncIterator[ClusterClient]:
    security = SecuritySettings.parse({"security.protocol": "SSL", **stores}).secured()
    addresses = [listener.endpoint for broker in brokers for listener in broker.bound_listeners]
    async with ClusterClient(
        addresses, clock=SystemClock(), randomness=random.SystemRandom(), security=security
    ) as cluster:
        yield cluster


async def test_brokers_follow_each_other_by_mutual_tls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stores: dict[str, str]
) -> None:
    async with shared_store(tmp_path, monkeypatch) as store, AsyncExitStack() as stack:
        brokers = []
        for number in (1, 2):
            properties = {
                **LISTENER,
                **stores,
                "broker.id": str(number),
                "log.dirs": str(tmp_path / str(number)),
                "zookeeper.connect": "the-store-of-the-test",
            }
            broker = Broker(BrokerConfig.load(properties))
            await broker.startup()
            stack.push_async_callback(broker.shutdown)
            brokers.append(broker)
        await create_topic(store.connect(), "t", Uuid(bytes(range(16))), {0: [1, 2]}, {})
        cluster = await stack.enter_async_context(client_of(brokers, stores))
        large = [OutgoingRecord(None, bytes(100_000)) for _ in range(20)]
        assert await Producer(cluster).send("t", large) == 20
        await eventually(lambda: {end_of(each) for each in brokers} == {20})
