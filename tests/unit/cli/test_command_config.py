"""`--command-config`: how the tools reach a cluster that asks who they are."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner, Result
from tests.support.scripted_broker import ScriptedBroker, broker_in_thread
from tests.support.scripted_sasl import plain_users

from barnabas.cli.main import cli
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def broker(authority: trustme.CA) -> Iterator[ScriptedBroker]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    script = plain_users().script
    script[ApiKey.METADATA] = lambda *_: MetadataResponse(topics=[MetadataResponseTopic(name="orders")])
    with broker_in_thread(script, context) as broker:
        yield broker


@pytest.fixture
def properties(tmp_path: Path, authority: trustme.CA) -> Path:
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\n"
        f"ssl.truststore.location={trusted}\n"
        "sasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={MODULE} required \\\n"
        '  username="alice" password="${env:KAFKA_PASSWORD}";\n'
        "linger.ms=5\n"
    )
    return file


def invoke(*arguments: str, **environment: str) -> Result:
    environment = {"KAFKA_PASSWORD": "s3cret", **environment}
    return CliRunner().invoke(cli, arguments, env={"BARNABAS_BOOTSTRAP": None, **environment})


def test_a_file_of_client_properties_opens_a_secured_cluster(
    broker: ScriptedBroker, properties: Path
) -> None:
    address, file = str(broker.address), str(properties)
    for result in (
        invoke("topic", "list", "--bootstrap", address, "--command-config", file),
        invoke("--bootstrap", address, "--command-config", file, "topic", "list"),
        invoke("topic", "list", "--bootstrap", address, BARNABAS_COMMAND_CONFIG=file),
    ):
        assert result.exit_code == 0, result.output
        assert "orders" in result.output


def test_the_file_may_say_where_the_cluster_is(broker: ScriptedBroker, properties: Path) -> None:
    properties.write_text(f"{properties.read_text()}bootstrap.servers={broker.address}\n")
    assert "orders" in invoke("topic", "list", "--command-config", str(properties)).output


def test_a_refused_password_is_said_at_once_and_not_shown(broker: ScriptedBroker, properties: Path) -> None:
    result = invoke(
        "topic",
        "list",
        "--bootstrap",
        str(broker.address),
        "--command-config",
        str(properties),
        KAFKA_PASSWORD="wr0ng",
    )
    assert result.exit_code == 1
    assert "rejects the authentication: " in result.output
    assert "wr0ng" not in result.output
    assert "alice" not in result.output


def test_a_broker_with_an_untrusted_certificate_is_named(broker: ScriptedBroker, properties: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(properties.parent / "ca.pem"))
    result = invoke("topic", "list", "--bootstrap", str(broker.address), "--command-config", str(properties))
    assert result.exit_code == 1
    assert "is not trusted" in result.output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("security.protocol=SSLv3", "security.protocol is one of"),
        ("sasl.login.callback.handler.class=com.example.Evil", "names a class"),
        ("sasl.jaas.config=${env:NOT_THERE}", "NOT_THERE"),
        ("ssl.truststore.location=nowhere.pem", "No such file"),
        ("sasl.username=alice", "'sasl.username', which another client has; here: sasl.jaas.config"),
    ],
)
def test_settings_that_cannot_be_used_end_the_command(properties: Path, line: str, message: str) -> None:
    properties.write_text(f"{properties.read_text()}{line}\n")
    result = invoke("topic", "list", "--command-config", str(properties))
    assert result.exit_code == 2
    assert message in result.output


def test_a_file_that_is_not_there_is_wrong_usage() -> None:
    assert invoke("topic", "list", "--command-config", "nowhere").exit_code == 2
