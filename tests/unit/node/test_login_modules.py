"""Login modules among the settings, or in a Kafka broker's JAAS file."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.config.broker_config import BrokerConfig
from barnabas.node.security.inter_broker_security import inter_broker_settings
from barnabas.node.security.login_modules import login_entry
from barnabas.security.sasl.jaas import JaasEntry, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
FILE = f"""
KafkaServer {{
    {PLAIN} required username="all" password="s3cret";
    {SCRAM} required username="scram" password="s3cret";
}};
inside.KafkaServer {{ {PLAIN} required username="inside" password="s3cret"; }};
"""


def config(tmp_path: Path, **more: str) -> BrokerConfig:
    (tmp_path / "jaas").write_text(FILE)
    settings = {
        "java.security.auth.login.config": str(tmp_path / "jaas"),
        "listeners": "INSIDE://127.0.0.1:1,OUTSIDE://127.0.0.1:2",
        "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    return BrokerConfig.load({**settings, **more})


@pytest.mark.parametrize(
    ("listener", "mechanism", "user"),
    [
        ("INSIDE", "PLAIN", "inside"),
        ("OUTSIDE", "PLAIN", "all"),
        ("OUTSIDE", "SCRAM-SHA-256", "scram"),
        ("INSIDE", "SCRAM-SHA-256", None),
        ("OUTSIDE", "GSSAPI", None),
    ],
)
def test_a_listener_has_its_own_section_or_the_brokers(
    tmp_path: Path, listener: str, mechanism: str, user: str | None
) -> None:
    entry = login_entry(config(tmp_path), listener, mechanism)
    assert (None if entry is None else entry.options["username"]) == user


def test_settings_win_over_the_file(tmp_path: Path) -> None:
    key = "listener.name.inside.plain.sasl.jaas.config"
    entry = login_entry(config(tmp_path, **{key: f'{PLAIN} required username="set";'}), "INSIDE", "PLAIN")
    assert entry is not None
    assert entry.options == {"username": "set"}
    assert login_entry(BrokerConfig.load({}), "PLAINTEXT", "PLAIN") is None


def test_brokers_log_in_to_each_other_by_the_file(tmp_path: Path) -> None:
    login = inter_broker_settings(config(tmp_path)).secured().login
    assert login is not None
    assert next(login.begin("host")) == b"\0inside\0s3cret"


def test_an_entry_is_rendered_as_it_was() -> None:
    entry = JaasEntry(PLAIN, "required", {"username": "a", "password": '"q\\uo;te= \n\t\\n'})
    assert parse_jaas(entry.render()) == [entry]
