"""`barnabas user`: against a broker, and against the store of one that is down."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient

from barnabas.cli.main import cli
from barnabas.testing.broker import run_broker
from tests.scenario.security.sasl_broker import SETTINGS, confluent

TIMEOUT_S = 60.0


def invoke(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin)


def test_users_before_the_first_start_and_while_a_broker_runs(tmp_path: Path) -> None:
    """A broker that knows SCRAM alone can be made: its first user is there before it."""
    data = tmp_path / "data"
    added = invoke("user", "add", "root", "--data-dir", str(data), stdin="first\n")
    assert added.exit_code == 0, added.output
    settings = {
        "listeners": SETTINGS["listeners"],
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required"
            ' username="root" password="first";'
        ),
    }
    with run_broker(settings, data_dir=data) as broker:
        AdminClient(confluent(broker, "SCRAM-SHA-256", "root", "first")).list_topics(timeout=TIMEOUT_S)
        file = tmp_path / "client.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
            ' username="root" password="first";\n'
        )
        access = ("--bootstrap", broker.bootstrap, "--command-config", str(file))
        both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512", "--iterations", "4096")
        added = invoke("user", "add", "alice", *both, *access, stdin="wonder\n")
        assert added.exit_code == 0, added.output
        assert "wonder" not in added.output
        AdminClient(confluent(broker, "SCRAM-SHA-512", "alice", "wonder")).list_topics(timeout=TIMEOUT_S)
        listed = invoke("user", "list", "--json", *access)
        assert json.loads(listed.output) == {
            "alice": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096},
            "root": {"SCRAM-SHA-256": 8192},
        }
        assert "a broker has this store open" in invoke("user", "list", "--data-dir", str(data)).output
        assert invoke("user", "delete", "alice", *access).exit_code == 0
        assert invoke("user", "delete", "alice", *access).exit_code == 4
    assert json.loads(invoke("user", "list", "--json", "--data-dir", str(data)).output) == {
        "root": {"SCRAM-SHA-256": 8192}
    }
    assert invoke("user", "delete", "root", "--data-dir", str(data)).exit_code == 0
    assert invoke("user", "delete", "root", "--data-dir", str(data)).exit_code == 4


def test_users_in_a_zookeeper_are_not_written_beside_it(tmp_path: Path) -> None:
    (tmp_path / "zookeeper" / "version-2").mkdir(parents=True)
    added = invoke("user", "add", "root", "--data-dir", str(tmp_path), stdin="first\n")
    assert added.exit_code == 2
    assert "are in its ZooKeeper: leave --data-dir out" in added.output
    assert not (tmp_path / "coordination").exists()


def test_a_mistyped_directory_is_named_and_stays_empty(tmp_path: Path) -> None:
    for words in (("list",), ("delete", "root")):
        ended = invoke("user", *words, "--data-dir", str(tmp_path / "nope"))
        assert ended.exit_code == 4
        assert "holds no data of a broker: check --data-dir" in ended.output
    assert not (tmp_path / "nope").exists()


def test_no_password_no_user(tmp_path: Path) -> None:
    assert invoke("user", "add", "root", "--data-dir", str(tmp_path / "data")).exit_code == 2
    assert invoke("user", "add", "root", "--iterations", "10").exit_code == 2


JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="root" password="first";'


def test_a_user_gets_the_mechanisms_that_the_listeners_offer(tmp_path: Path) -> None:
    """A credential by another mechanism is refused at each login, though the command said that it works."""
    data, strong = tmp_path / "data", "SCRAM-SHA-512"
    added = invoke("user", "add", "root", "--mechanism", strong, "--data-dir", str(data), stdin="first\n")
    assert added.exit_code == 0, added.output
    settings = {
        "listeners": SETTINGS["listeners"],
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": strong,
        "sasl.mechanism.inter.broker.protocol": strong,
        f"listener.name.sasl_plaintext.{strong.lower()}.sasl.jaas.config": JAAS,
    }
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={strong}\nsasl.jaas.config={JAAS}\n")
    with run_broker(settings, data_dir=data) as broker:
        access = ("--bootstrap", broker.bootstrap, "--command-config", str(file))
        added = invoke("user", "add", "alice", *access, stdin="wonder\n")
        assert added.output == "user alice can log in by SCRAM-SHA-512\n"
        AdminClient(confluent(broker, strong, "alice", "wonder")).list_topics(timeout=TIMEOUT_S)
        both = ("--mechanism", strong, "--mechanism", "SCRAM-SHA-256")
        added = invoke("user", "add", "bob", *both, *access, stdin="builder\n")
        assert added.output == (
            "user bob can log in by SCRAM-SHA-512\n"
            "user bob has a password for SCRAM-SHA-256, which no listener accepts:"
            " sasl.enabled.mechanisms has SCRAM-SHA-512\n"
        )


def test_a_client_in_the_clear_adds_users_for_every_listener(tmp_path: Path) -> None:
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,{SETTINGS['listeners']}",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            ' username="a" password="b" user_a="b";'
        ),
    }
    with run_broker(settings, data_dir=tmp_path) as broker:
        added = invoke("user", "add", "alice", "--bootstrap", broker.bootstrap, stdin="wonder\n")
        assert added.output == "user alice can log in by SCRAM-SHA-256, SCRAM-SHA-512\n"


def test_a_user_in_the_store_of_a_secured_broker_gets_its_mechanism(tmp_path: Path) -> None:
    (tmp_path / "secure").mkdir()
    added = invoke("user", "add", "alice", "--data-dir", str(tmp_path), stdin="wonder\n")
    assert added.output == "user alice can log in by SCRAM-SHA-512\n"
