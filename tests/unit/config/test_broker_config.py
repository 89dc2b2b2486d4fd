"""Broker configuration: accepted keys, derived values, and messages about invalid ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import barnabas
from barnabas.client.security.settings import HARMLESS
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.cross_checks import without_effect
from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.definitions.keys import ConfigType, Key, Update
from barnabas.config.definitions.lookup import is_secret
from barnabas.config.definitions.refused import refusal
from barnabas.config.definitions.security import AUTHORIZATION, SASL, TLS, TOKENS
from barnabas.config.definitions.shorthand import NO_EFFECT
from barnabas.config.definitions.topics import TOPIC_KEYS, broker_default
from barnabas.config.derived import retention_ms
from barnabas.config.listeners import for_listener
from barnabas.config.log_config import resolve
from barnabas.config.render_docs import render
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.errors import InvalidConfig

load = BrokerConfig.load

PYTHON_TYPES = {
    ConfigType.BOOLEAN: bool,
    ConfigType.STRING: str,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.PASSWORD: str,
    ConfigType.LIST: Sequence[str],
}


def list_free(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def complaint(**properties: str) -> str:
    with pytest.raises(InvalidConfig) as caught:
        load({name.replace("_", "."): text for name, text in properties.items()})
    return caught.value.message


def test_an_empty_configuration_is_a_broker_on_the_loopback() -> None:
    config = load({})
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert config.advertised_listeners == {}
    assert config.zookeeper_connect is None
    assert config.broker_id == -1


@pytest.mark.parametrize("name", list(BROKER_KEYS))
def test_every_default_is_valid_and_survives_being_written_and_read(name: str) -> None:
    row = BROKER_KEYS[name]
    assert row.doc.endswith(".")
    if row.default is not None:
        value = row.parse(row.render(row.default) or "")
        assert (tuple(value) if isinstance(value, list) else value) == row.default


def test_every_declared_attribute_is_a_key_of_that_type() -> None:
    worked_out = {
        "given", "values", "listeners", "advertised_listeners", "inter_broker_listener",
        "control_plane_listener_name", "log_dirs", "max_connections_per_ip_overrides",
    }  # fmt: skip
    rows = {name.replace(".", "_"): row for name, row in BROKER_KEYS.items()}
    hints = get_type_hints(BrokerConfig)
    assert worked_out < hints.keys()
    for attribute in hints.keys() - worked_out:
        row = rows[attribute]
        expected: Any = PYTHON_TYPES[row.type]
        assert hints[attribute] == (expected if row.default is not None else expected | None), attribute


def test_a_key_that_nothing_reads_says_so() -> None:
    """Except the keys that encrypt settings: they are rejected."""
    definitions = Path(barnabas.__file__).parent / "config" / "definitions"
    assert definitions.is_dir(), "its files name every key"
    sources = Path(barnabas.__file__).parent.rglob("*.py")
    code = "\n".join(path.read_text() for path in sources if definitions not in path.parents)
    supplied = {name for row in TOPIC_KEYS.values() for name in (row.synonym, *dict(row.coarser))}
    for name, row in BROKER_KEYS.items():
        if name.startswith("password.encoder."):
            continue
        # Some are read as what stands under a prefix.
        names = {name, name.removeprefix("zookeeper."), name.removeprefix("sasl.oauthbearer.")}
        is_read = name not in HARMLESS and (name in supplied or any(f'"{each}"' in code for each in names))
        assert is_read or f".{name.replace('.', '_')}" in code or row.doc.startswith(NO_EFFECT), name


def test_socket_buffers_are_left_to_the_system_unless_a_size_is_given() -> None:
    assert load({}).send_buffer_bytes == -1
    given = load({"socket.send.buffer.bytes": "4096", "socket.receive.buffer.bytes": "-1"})
    assert (given.send_buffer_bytes, given.receive_buffer_bytes) == (4096, -1)


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("message.max.bytes", 1_048_588),
        ("fetch.max.bytes", 57_671_680),
        ("socket.request.max.bytes", 104_857_600),
        ("connections.max.idle.ms", 600_000),
        ("replica.lag.time.max.ms", 30_000),
        ("zookeeper.session.timeout.ms", 18_000),
        ("offsets.retention.minutes", 10_080),
        ("transactional.id.expiration.ms", 604_800_000),
        ("group.max.session.timeout.ms", 1_800_000),
        ("broker.id.generation.enable", True),
        ("log.cleaner.dedupe.buffer.size", 134_217_728),
    ],
)
def test_defaults_are_those_of_kafka(key: str, default: object) -> None:
    assert load({}).values[key] == default


def test_the_finest_unit_of_a_time_wins() -> None:
    assert retention_ms(load({}).values) == 168 * 3_600_000
    assert retention_ms(load({"log.retention.hours": "1"}).values) == 3_600_000
    assert retention_ms(load({"log.retention.hours": "1", "log.retention.minutes": "5"}).values) == 300_000
    assert retention_ms(load({"log.retention.minutes": "5", "log.retention.ms": "7"}).values) == 7
    assert retention_ms(load({"log.retention.hours": "-1"}).values) == -1
    assert resolve({}, load({"log.roll.hours": "2"}).values).segment_ms == 7_200_000
    assert resolve({}, load({"log.roll.hours": "2", "log.roll.ms": "9"}).values).segment_ms == 9


@pytest.mark.parametrize("name", [name for name, row in TOPIC_KEYS.items() if row.synonym])
def test_a_topic_key_and_the_broker_key_behind_it_agree(name: str) -> None:
    topic_row = TOPIC_KEYS[name]
    assert topic_row.synonym is not None
    broker_row = BROKER_KEYS[topic_row.synonym]
    assert broker_row.type is topic_row.type
    inherited = broker_default(topic_row, load({}).values)
    assert list_free(inherited) == list_free(topic_row.default)
    assert all(coarser in BROKER_KEYS for coarser, _ in topic_row.coarser)


def test_topics_inherit_from_the_broker() -> None:
    config = load({"log.segment.bytes": "1000", "log.roll.hours": "3", "log.retention.minutes": "2"})
    inherited = resolve({}, config.values)
    assert inherited.segment_bytes == 1_000
    assert inherited.segment_ms == 3 * 3_600_000
    assert inherited.retention_ms == retention_ms(config.values) == 120_000
    assert resolve({}, load({"log.retention.hours": "-1"}).values).retention_ms == -1


def test_an_unknown_key_is_refused_with_what_was_meant() -> None:
    assert "did you mean log.segment.bytes" in complaint(log_segmnt_bytes="1")


def test_a_bad_value_is_refused_with_what_is_allowed() -> None:
    assert complaint(num_partitions="0") == "invalid value '0' for num.partitions: must be at least 1"
    assert "true or false" in complaint(delete_topic_enable="yes")
    assert "gzip" in complaint(compression_type="zip")
    assert "[1, 9] or -1" in complaint(compression_gzip_level="0")


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("process.roles", "KRaft"),
        ("node.id", "broker.id"),
        ("controller.quorum.voters", "zookeeper.connect"),
        ("controller.quorum.election.timeout.ms", "KRaft"),
        ("remote.log.storage.system.enable", "tiered"),
        ("group.share.enable", "share"),
        ("advertised.host.name", "advertised.listeners"),
    ],
)
def test_a_key_that_cannot_be_honoured_is_refused_with_the_reason(key: str, hint: str) -> None:
    with pytest.raises(InvalidConfig, match=hint):
        load({key: "1"})


def test_all_faults_are_named_at_once() -> None:
    """A file that is corrected one message at a time takes as many starts as it has faults."""
    assert complaint(num_partitions="0", node_id="1", log_segmnt_bytes="1") == (
        "3 problems: (1) invalid value '0' for num.partitions: must be at least 1;"
        " (2) configuration key 'node.id' is not supported: it belongs to KRaft, and this broker keeps its"
        " metadata in ZooKeeper or, on its own, in an embedded store; remove it; the id of the broker is"
        " broker.id;"
        " (3) unknown configuration key 'log.segmnt.bytes'; did you mean log.segment.bytes"
        " or log.retention.bytes or offsets.topic.segment.bytes?"
    )
    conflicts = complaint(super_users="User:a", log_retention_ms="0", broker_id="2000")
    assert conflicts.startswith("3 problems: (1) broker.id 2000 is above reserved.broker.max.id")
    assert "(2) super.users is given, but no authorizer.class.name" in conflicts
    assert "(3) log.retention.{ms,minutes,hours} must be at least 1" in conflicts


def test_no_key_is_both_known_and_refused() -> None:
    assert [name for name in BROKER_KEYS if refusal(name)] == []


def test_listeners_take_ipv6_free_ports_and_every_interface() -> None:
    config = load({"listeners": "PLAINTEXT://[::1]:0, ssl://:9093"})
    assert config.listeners == (
        ListenerEndpoint("PLAINTEXT", Endpoint("::1", 0), "PLAINTEXT"),
        ListenerEndpoint("SSL", Endpoint("", 9093), "SSL"),
    )
    assert str(config.listeners[0]) == "PLAINTEXT://[::1]:0"


def test_a_listener_name_of_ones_own_has_the_protocol_of_the_map() -> None:
    config = load(
        {
            "listeners": "INSIDE://:1,OUTSIDE://:2",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL",
            "inter.broker.listener.name": "inside",
            "advertised.listeners": "OUTSIDE://broker.example:2",
        }
    )
    assert config.listeners[1].security_protocol == "SASL_SSL"
    assert config.inter_broker_listener.listener_name == "INSIDE"
    assert config.advertised_listeners["OUTSIDE"].endpoint.host == "broker.example"
    assert "INSIDE" not in config.advertised_listeners


@pytest.mark.parametrize(
    ("properties", "hint"),
    [
        ({"listeners": "localhost:9092"}, "NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "brackets"),
        ({"listeners": "PLAINTEXT://:70000"}, "largest is 65535"),
        ({"listeners": ""}, "names no listener"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "used twice"),
        ({"listeners": "PLAINTEXT://:1,SSL://:1"}, "same port"),
        ({"listeners": "INSIDE://:1"}, "listener.security.protocol.map"),
        ({"listener.security.protocol.map": "A:TLS"}, "not a security protocol"),
        ({"listener.security.protocol.map": "A"}, "NAME:PROTOCOL"),
        ({"listeners": "SSL://:1,SASL_SSL://:2"}, "inter.broker.listener.name"),
        ({"inter.broker.listener.name": "SSL"}, "has only PLAINTEXT"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "only one",
        ),
        ({"advertised.listeners": "SSL://a:1"}, "not among listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "no client can connect"),
        ({"control.plane.listener.name": "PLAINTEXT"}, "both PLAINTEXT"),
        ({"broker.id": "1001"}, "reserved.broker.max.id"),
        ({"broker.id.generation.enable": "false"}, "broker.id must be given"),
        ({"log.retention.ms": "0"}, "-1"),
        ({"replica.fetch.wait.max.ms": "31000"}, "replica.socket.timeout.ms"),
        ({"replica.lag.time.max.ms": "100"}, "ISR"),
        ({"max.connections.per.ip": "0"}, "overrides"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "HOST:COUNT"),
        ({"log.cleaner.threads": "200"}, "dedupe"),
        ({"queued.max.request.bytes": "1000"}, "socket.request.max.bytes"),
        ({"connections.max.idle.ms": "50"}, "authentication.delay"),
        ({"group.consumer.session.timeout.ms": "1000"}, "min"),
        ({"listeners": "SASL_SSL://:1"}, None),
        (
            {"listeners": "SASL_SSL://:1", "sasl.enabled.mechanisms": "PLAIN"},
            "sasl.enabled.mechanisms",
        ),
        ({"log.dirs": ","}, "no directory"),
        ({"log.dirs": "a,a"}, "twice"),
    ],
)
def test_settings_that_disagree_are_refused(properties: dict[str, str], hint: str | None) -> None:
    if hint is None:
        load(properties)
        return
    with pytest.raises(InvalidConfig) as caught:
        load(properties)
    assert hint in caught.value.message


def test_a_broker_has_one_coordination_store() -> None:
    assert load({}).owns_store
    assert not load({"coordination.socket": "/s"}).owns_store
    said = complaint(zookeeper_connect="zk:2181", coordination_socket="/s")
    assert "zookeeper.connect and coordination.socket name two coordination stores" in said


@pytest.mark.parametrize(
    ("properties", "hint"),
    [
        ({"authorizer.class.name": "org.example.Mine"}, "org.example.Mine, which cannot be loaded here"),
        ({"super.users": "User:admin"}, "super.users is given, but no authorizer.class.name"),
        ({"allow.everyone.if.no.acl.found": "true"}, "every client is allowed everything"),
        ({"password.encoder.secret": "secret"}, "no encryption of settings"),
        ({"zookeeper.ssl.ocsp.enable": "true"}, "no revocation check"),
    ],
)
def test_a_promise_of_security_that_cannot_be_kept_is_refused(properties: dict[str, str], hint: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(properties)
    assert hint in caught.value.message


@pytest.mark.parametrize("prefix", ["", "listener.name.external.oauthbearer."])
@pytest.mark.parametrize("kind", ["jwks", "token"])
def test_an_address_with_a_password_is_refused_without_repeating_it(prefix: str, kind: str) -> None:
    key = f"{prefix}sasl.oauthbearer.{kind}.endpoint.url"
    with pytest.raises(InvalidConfig) as caught:
        load({key: "https://broker:hunter2@issuer.example/keys"})
    assert caught.value.message.startswith(f"{key} has a user")
    assert "hunter2" not in caught.value.message
    load({key: "https://issuer.example/keys?of=a@b"})


def test_log_directories_follow_the_users_data_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert load({}).log_dirs == (tmp_path / "barnabas",)
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load({}).log_dirs == (tmp_path / ".local/share/barnabas",)
    assert load({"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs == (Path("/b"), Path("/c"))


def test_internal_topics_fit_a_small_cluster_unless_told_otherwise() -> None:
    key = "offsets.topic.replication.factor"
    assert load({}).internal_replication_factor(key, live_brokers=1) == 1
    assert load({}).internal_replication_factor(key, live_brokers=5) == 3
    assert load({key: "3"}).internal_replication_factor(key, live_brokers=1) == 3
    assert load({}).transaction_min_isr(replication_factor=1) == 1
    assert load({}).transaction_min_isr(replication_factor=3) == 2


@pytest.mark.parametrize("row", [*SASL, *TOKENS, *AUTHORIZATION], ids=lambda row: row.name)
def test_a_key_of_security_at_its_default_asks_for_nothing(row: Key) -> None:
    text = row.render(row.default)
    if text is not None:
        load({row.name: text})
    if row.name.startswith("sasl.kerberos.") and row.doc.startswith(NO_EFFECT):
        assert row.update is Update.PER_BROKER, "as in Kafka: there is nothing that would have to follow"
    else:
        assert row.update is Update.READ_ONLY, "nothing would follow a change"


@pytest.mark.parametrize("row", TLS, ids=lambda row: row.name)
def test_of_the_keys_of_tls_those_of_files_change_for_one_listener(row: Key) -> None:
    is_of_file = row.name.endswith((".type", ".location"))
    assert row.update is (Update.PER_LISTENER if is_of_file else Update.READ_ONLY)


def test_the_keys_of_a_secured_kafka_are_taken() -> None:
    config = load(
        {
            "listeners": "SSL://:9093",
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.location": "/var/private/ssl/kafka.server.keystore.jks",
            "ssl.keystore.password": "test1234",
            "ssl.key.password": "test1234",
            "ssl.truststore.location": "/var/private/ssl/kafka.server.truststore.jks",
            "ssl.truststore.password": "test1234",
            "ssl.client.auth": "required",
            "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
            "ssl.protocol": "TLSv1.2",
            "ssl.secure.random.implementation": "SHA1PRNG",
            "ssl.endpoint.identification.algorithm": "",
            "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
        }
    )
    assert config.listeners[0].security_protocol == "SSL"
    assert "test1234" not in repr(config)


def test_keys_without_effect_are_named_for_a_warning() -> None:
    config = load({"num.io.threads": "3", "num.network.threads": "3", "num.partitions": "7"})
    assert without_effect(config.given) == ["num.io.threads"], "one is at its default, one has an effect"


def test_a_listener_may_have_its_own_settings() -> None:
    config = load(
        {
            "listener.name.plaintext.max.connections": "7",
            "listener.name.plaintext.scram-sha-256.sasl.jaas.config": "secret",
        }
    )
    assert for_listener(config.values, "PLAINTEXT", "max.connections") == 7
    assert for_listener(config.values, "SSL", "max.connections") == config.max_connections
    assert for_listener(config.values, "PLAINTEXT", "sasl.jaas.config", "SCRAM-SHA-256") == "secret"
    assert is_secret("listener.name.plaintext.scram-sha-256.sasl.jaas.config")
    assert "secret'" not in repr(config)


def test_a_change_makes_a_new_configuration() -> None:
    config = load({"num.partitions": "3"})
    assert config.with_changes({"num.partitions": "4"}).num_partitions == 4
    assert config.with_changes({"num.partitions": None}).num_partitions == 1
    assert config.num_partitions == 3


def test_the_committed_document_is_what_the_rows_render_to() -> None:
    document = Path(__file__).parents[3] / "docs" / "CONFIG.md"
    assert document.read_text(encoding="utf-8") == render()
