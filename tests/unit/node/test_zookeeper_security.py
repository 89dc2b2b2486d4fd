"""Credentials and TLS for ZooKeeper. Messages about invalid settings show no secret."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.errors import InvalidConfig
from barnabas.node.security.zookeeper_security import zookeeper_login, zookeeper_tls

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"
CLIENT = f'KafkaServer {{ a.B required; }}; Client {{ {MODULE} username="kafka" password="s3cret"; }};'


def login(path: Path, text: str, **more: str) -> tuple[str, str] | None:
    path.write_text(text)
    settings = {name.replace("_", "."): value for name, value in more.items()}
    return zookeeper_login(BrokerConfig.load({"java.security.auth.login.config": str(path), **settings}))


def test_the_section_of_a_file_has_name_and_password(tmp_path: Path) -> None:
    assert login(tmp_path / "jaas", CLIENT) == ("kafka", "s3cret")
    other = CLIENT.replace("Client", "ZooKeeper")
    assert login(tmp_path / "jaas", other, zookeeper_sasl_clientconfig="ZooKeeper") == ("kafka", "s3cret")


def test_no_user_logs_in_without_a_file_or_against_the_operators_will(tmp_path: Path) -> None:
    assert zookeeper_login(BrokerConfig.load({})) is None
    assert login(tmp_path / "jaas", CLIENT, zookeeper_sasl_client="false") is None


def test_a_file_that_has_no_such_section_is_for_listeners_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert login(tmp_path / "jaas", "KafkaServer { a.B required; };") is None
    assert "has no section Client: the broker does not log in to ZooKeeper" in caplog.text


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (CLIENT.replace("DigestLoginModule", "Krb5LoginModule"), "has no DigestLoginModule"),
        (CLIENT.replace("password=", "passwort="), "no password"),
        (CLIENT.replace('"kafka"', '""'), "no username"),
        (CLIENT[:-1], "lacks ';'"),
    ],
)
def test_what_is_wrong_with_the_file_is_said_without_the_password(
    tmp_path: Path, text: str, hint: str
) -> None:
    with pytest.raises(InvalidConfig, match=hint) as refused:
        login(tmp_path / "jaas", text)
    assert "s3cret" not in refused.value.message


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_file_that_is_none_is_said(tmp_path: Path, name: str) -> None:
    config = BrokerConfig.load({"java.security.auth.login.config": str(tmp_path / name)})
    with pytest.raises(InvalidConfig, match="cannot be read"):
        zookeeper_login(config)


def test_a_store_that_cannot_be_used_is_said_at_once(tmp_path: Path) -> None:
    given = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    with pytest.raises(InvalidConfig, match=r"TLS to ZooKeeper .*ca\.pem cannot be read"):
        zookeeper_tls(BrokerConfig.load(given))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    make = zookeeper_tls(BrokerConfig.load(given))
    assert make is not None
    assert make().check_hostname
    make = zookeeper_tls(BrokerConfig.load({**given, "zookeeper.ssl.endpoint.identification.algorithm": ""}))
    assert make is not None
    assert not make().check_hostname
    assert zookeeper_tls(BrokerConfig.load({})) is None
