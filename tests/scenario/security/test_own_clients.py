"""Our own clients on our own broker: the command line, the blocking connection, the channel."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.main import cli
from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.channel import Channel
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.blocking import Connection
from barnabas.client.security.settings import SecuritySettings
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import SaslAuthenticationFailed, UnsupportedSaslMechanism
from barnabas.protocol.config_numbers import ResourceType
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.security.credentials.scram_credential import ScramMechanism
from barnabas.testing.broker import RunningBroker
from tests.scenario.security.sasl_broker import ADMIN, ADMIN_PASSWORD, sasl_broker
from tests.support.waiting import eventually, eventually_async

MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-256": "scram.ScramLoginModule"}
TIMEOUT_MS = 60_000
SESSION_MS = 6_000
"""A client authenticates again in the last 5 to 15 % of a session; a busy machine delays it."""
REAUTHENTICATIONS = re.compile(r"^kafka_successful_reauthentication_total\S* (\S+)$", re.MULTILINE)


def client_properties(mechanism: str, user: str, password: str) -> dict[str, str]:
    module = f"org.apache.kafka.common.security.{MODULES[mechanism]}"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


BY_PLAIN = client_properties("PLAIN", ADMIN, ADMIN_PASSWORD)
BY_SCRAM = client_properties("SCRAM-SHA-256", "alice", "wonder")


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with sasl_broker({"connections.max.reauth.ms": str(SESSION_MS)}) as broker:
        asyncio.run(_add_alice(broker))
        yield broker


def address_of(broker: RunningBroker) -> Endpoint:
    return Endpoint.parse(broker.bootstrap)


async def _add_alice(broker: RunningBroker) -> None:
    salt = b"salt of the earth"
    mechanism = ScramMechanism.SHA_256
    row = ScramCredentialUpsertion(
        name="alice",
        mechanism=mechanism.number,
        iterations=4_096,
        salt=salt,
        salted_password=mechanism.salted_password("wonder", salt, 4_096),
    )
    security = SecuritySettings.parse(BY_PLAIN).secured()
    channel = await Channel.connect(address_of(broker), security=security)
    answer = await channel.send(
        AlterUserScramCredentialsRequest(upsertions=[row]), AlterUserScramCredentialsResponse
    )
    assert [each.error_code for each in answer.results] == [0]
    await channel.finish()


def reauthentications(broker: RunningBroker) -> int:
    return sum(int(float(each)) for each in REAUTHENTICATIONS.findall(broker.metrics_text()))


def command(broker: RunningBroker, tmp_path: Path, given: dict[str, str], *arguments: str) -> Result:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    options = ["--bootstrap", broker.bootstrap, "--command-config", str(file)]
    return CliRunner().invoke(cli, [*options, *arguments])


@pytest.mark.parametrize("given", [BY_PLAIN, BY_SCRAM], ids=["PLAIN", "SCRAM"])
def test_commands_log_in(broker: RunningBroker, tmp_path: Path, given: dict[str, str]) -> None:
    name = f"topic-of-{given['sasl.mechanism']}"
    assert command(broker, tmp_path, given, "topic", "create", name).exit_code == 0
    assert name in command(broker, tmp_path, given, "topic", "list").output


@pytest.mark.parametrize("given", [BY_PLAIN, BY_SCRAM], ids=["PLAIN", "SCRAM"])
def test_commands_with_a_wrong_password_are_refused_at_once(
    broker: RunningBroker, tmp_path: Path, given: dict[str, str]
) -> None:
    jaas = given["sasl.jaas.config"].replace('password="', 'password="not-')
    result = command(broker, tmp_path, {**given, "sasl.jaas.config": jaas}, "topic", "list")
    assert result.exit_code == 1
    assert "rejects the authentication" in result.output
    assert "not-" not in result.output


def test_a_mechanism_that_is_not_enabled_is_refused_by_name(broker: RunningBroker) -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    security = SecuritySettings.parse(given).secured(token=lambda: "a.b.c")
    with pytest.raises(UnsupportedSaslMechanism, match=r"it offers .*PLAIN"):
        Connection.connect(
            address_of(broker),
            client_id="me",
            connect_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=TIMEOUT_MS,
            security=security,
        )


@pytest.mark.parametrize("given", [BY_PLAIN, BY_SCRAM], ids=["PLAIN", "SCRAM"])
async def test_a_channel_outlives_its_session(broker: RunningBroker, given: dict[str, str]) -> None:
    channel = await Channel.connect(address_of(broker), security=SecuritySettings.parse(given).secured())
    before = reauthentications(broker)

    async def ask() -> bool:
        await channel.send(MetadataRequest(topics=[]), MetadataResponse)
        return reauthentications(broker) > before

    async def look() -> bool:
        return reauthentications(broker) > before + 1

    await eventually_async(ask, "a session is prolonged while requests are sent", retried=())
    await eventually_async(look, "a session is prolonged while no request is sent")
    await channel.send(MetadataRequest(topics=[]), MetadataResponse)
    await channel.finish()


def test_a_blocking_connection_outlives_its_session(broker: RunningBroker) -> None:
    connection = Connection.connect(
        address_of(broker),
        client_id="me",
        connect_timeout_ms=TIMEOUT_MS,
        request_timeout_ms=TIMEOUT_MS,
        security=SecuritySettings.parse(BY_SCRAM).secured(),
    )
    before = reauthentications(broker)

    def ask() -> bool:
        connection.ask(MetadataRequest(topics=[]), MetadataResponse)
        return reauthentications(broker) > before + 1

    eventually(ask, "two sessions are prolonged", retried=())
    connection.close()


async def test_a_cluster_client_hears_a_refusal_instead_of_trying_on(broker: RunningBroker) -> None:
    security = SecuritySettings.parse(client_properties("PLAIN", ADMIN, "wrong")).secured()
    client = ClusterClient(
        [address_of(broker)], clock=SystemClock(), randomness=random.SystemRandom(), security=security
    )
    with pytest.raises(SaslAuthenticationFailed):
        async with client:
            await TopicAdmin(client).describe_configs(ResourceType.TOPIC, "t")
