"""Clients of others log in by every mechanism that they have, and not with a wrong password."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from joserfc import jwt
from joserfc.jwk import RSAKey
from kafka import KafkaConsumer, KafkaProducer

import barnabas.client
from barnabas.core.errors import SaslAuthenticationFailed
from barnabas.testing.broker import RunningBroker, run_broker
from tests.scenario.security.sasl_broker import SETTINGS, confluent, python, sasl_broker
from tests.support.waiting import PATIENCE_MS, POLL_S, eventually

TIMEOUT_S = 60.0
LOGINS = [
    ("PLAIN", "bob", "builder"),
    ("SCRAM-SHA-256", "alice", "wonder"),
    ("SCRAM-SHA-512", "alice", "land"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with sasl_broker() as broker:
        admin = AdminClient(confluent(broker))
        put(admin, "alice", ScramMechanism.SCRAM_SHA_256, "wonder")
        put(admin, "alice", ScramMechanism.SCRAM_SHA_512, "land")
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(TIMEOUT_S)
        yield broker


def put(admin: AdminClient, user: str, mechanism: Any, password: str, iterations: int = 8_192) -> None:
    info = ScramCredentialInfo(mechanism, iterations)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    admin.alter_user_scram_credentials([change])[user].result(TIMEOUT_S)


def assert_refused(properties: dict[str, Any], code: int = KafkaError._AUTHENTICATION) -> None:
    """librdkafka tries to log in again and again: it says why, and no record leaves it."""
    errors: list[KafkaError] = []
    producer = Producer(properties | {"error_cb": errors.append})
    producer.produce("t", b"x")

    def is_told() -> bool:
        producer.poll(POLL_S)
        return any(error.code() == code for error in errors)

    eventually(is_told)
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=POLL_S)
    assert producer.flush(POLL_S) == 1
    producer.purge()


def describe(admin: AdminClient, users: list[str] | None = None) -> Any:
    """A future for all users, or a future for each."""
    return admin.describe_user_scram_credentials(users)


@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
def test_confluent(broker: RunningBroker, mechanism: str, user: str, password: str) -> None:
    properties = confluent(broker, mechanism, user, password)
    producer = Producer(properties)
    producer.produce("t", mechanism.encode())
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**properties, "group.id": f"confluent-{mechanism}", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert message is not None
    assert message.error() is None


@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
def test_kafka_python(broker: RunningBroker, mechanism: str, user: str, password: str) -> None:
    arguments = python(broker, mechanism, user, password)
    producer = KafkaProducer(**arguments)
    producer.send("t", mechanism.encode()).get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer("t", **arguments, auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE_MS)
    assert next(iter(consumer)).topic == "t"
    consumer.close()


@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
async def test_aiokafka(broker: RunningBroker, mechanism: str, user: str, password: str) -> None:
    arguments = python(broker, mechanism, user, password)
    async with AIOKafkaProducer(**arguments) as producer:
        await producer.send_and_wait("t", mechanism.encode())
    async with AIOKafkaConsumer("t", **arguments, auto_offset_reset="earliest") as consumer:
        assert (await consumer.getone()).topic == "t"


@pytest.mark.parametrize(("mechanism", "user"), [(mechanism, user) for mechanism, user, _ in LOGINS])
async def test_a_wrong_password(broker: RunningBroker, mechanism: str, user: str) -> None:
    assert_refused(confluent(broker, mechanism, user, "wrong"))
    producer = AIOKafkaProducer(**python(broker, mechanism, user, "wrong"))
    with pytest.raises(AioKafkaError):
        await producer.start()
    await producer.stop()


def test_credentials_are_described_changed_and_deleted(broker: RunningBroker) -> None:
    admin = AdminClient(confluent(broker))
    put(admin, "carol", ScramMechanism.SCRAM_SHA_256, "one", 4_096)
    (info,) = describe(admin, ["carol"])["carol"].result(TIMEOUT_S).scram_credential_infos
    assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_256, 4_096)
    assert {"alice", "carol"} <= describe(admin).result(TIMEOUT_S).keys()
    carol = confluent(broker, "SCRAM-SHA-256", "carol", "two")
    put(admin, "carol", ScramMechanism.SCRAM_SHA_256, "two")
    AdminClient(carol).list_topics(timeout=TIMEOUT_S)
    deletion = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["carol"].result(TIMEOUT_S)
    assert_refused(carol)
    with pytest.raises(KafkaException, match="does not exist"):
        admin.alter_user_scram_credentials([deletion])["carol"].result(TIMEOUT_S)
    with pytest.raises(KafkaException, match="does not exist"):
        describe(admin, ["carol"])["carol"].result(TIMEOUT_S)


@pytest.mark.parametrize("iterations", [1, 4_095, 16_385])
def test_iterations_are_bounded(broker: RunningBroker, iterations: int) -> None:
    with pytest.raises(KafkaException, match="iterations"):
        put(AdminClient(confluent(broker)), "dave", ScramMechanism.SCRAM_SHA_512, "x", iterations)


def test_sessions_are_prolonged_while_producing() -> None:
    """librdkafka authenticates again before its session ends (KIP-368); no message fails.

    It does so in the last tenth of a session, which is a second here: a busy machine delays it.
    """
    with sasl_broker({"connections.max.reauth.ms": "10000"}) as broker:
        failed: list[Any] = []
        producer = Producer(confluent(broker) | {"linger.ms": 1})

        def write() -> None:
            producer.produce("t", b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
            producer.poll(0.01)

        def is_prolonged() -> bool:
            write()
            return "kafka_successful_reauthentication_total" in broker.metrics_text()

        eventually(is_prolonged)
        for _ in range(10):
            write()
        assert producer.flush(TIMEOUT_S) == 0
        metrics = broker.metrics_text()
    assert failed == []
    assert "kafka_expired_connections_killed_total" not in metrics


def test_users_stand_in_a_jaas_file(tmp_path: Path) -> None:
    key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    (tmp_path / "jaas").write_text(f"KafkaServer {{ {SETTINGS[key]} }};")
    settings = {name: value for name, value in SETTINGS.items() if name != key}
    with run_broker({**settings, "java.security.auth.login.config": str(tmp_path / "jaas")}) as broker:
        admin = AdminClient(confluent(broker, "PLAIN", "bob", "builder"))
        assert admin.list_topics(timeout=TIMEOUT_S).brokers


def test_sasl_inside_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    store, trusted = tmp_path / "broker.pem", tmp_path / "authority.pem"
    chain = b"".join(each.bytes() for each in certificate.cert_chain_pems)
    store.write_bytes(certificate.private_key_pem.bytes() + chain)
    authority.cert_pem.write_to_path(trusted)
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": SETTINGS[
            "listener.name.sasl_plaintext.plain.sasl.jaas.config"
        ],
    }
    with sasl_broker(settings) as broker:
        tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(trusted)}
        producer = Producer(confluent(broker) | tls)
        producer.produce("t", b"x")
        assert producer.flush(TIMEOUT_S) == 0
        assert_refused(confluent(broker, password="wrong") | tls)
        assert_refused(confluent(broker), KafkaError._ALL_BROKERS_DOWN)


@pytest.fixture(scope="module")
def issuer() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "k"})


@pytest.fixture(scope="module")
def bearer_broker(issuer: RSAKey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    keys.write_text(json.dumps({"keys": [issuer.as_dict(private=False)]}))
    with sasl_broker(bearer_settings(keys)) as broker:
        yield broker


def bearer_settings(keys: Path) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        ),
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "kafka",
    }


def bearer(issuer: RSAKey, **claims: Any) -> tuple[str, float]:
    ends_s = time.time() + 300
    said = {"sub": "alice", "iss": "https://issuer", "aud": "kafka", "exp": int(ends_s), **claims}
    return jwt.encode({"alg": "RS256", "kid": "k"}, said, issuer), ends_s


def with_token(broker: RunningBroker, token: tuple[str, float]) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: token,
        "log_level": 0,
    }


def test_a_token_of_the_issuer(bearer_broker: RunningBroker, issuer: RSAKey) -> None:
    producer = Producer(with_token(bearer_broker, bearer(issuer)))
    producer.produce("t", b"x")
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.parametrize("claims", [{"iss": "https://other"}, {"aud": "other"}, {"exp": 1}])
def test_a_token_that_is_not_for_here(
    bearer_broker: RunningBroker, issuer: RSAKey, claims: dict[str, Any]
) -> None:
    assert_refused(with_token(bearer_broker, bearer(issuer, **claims)))


def test_a_token_of_a_stranger(bearer_broker: RunningBroker) -> None:
    stranger = RSAKey.generate_key(2048, {"kid": "k"})
    assert_refused(with_token(bearer_broker, bearer(stranger)))


async def test_aiokafka_shows_a_token(bearer_broker: RunningBroker, issuer: RSAKey) -> None:
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return bearer(issuer)[0]

    arguments = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    async with AIOKafkaProducer(
        bootstrap_servers=bearer_broker.bootstrap, **arguments, sasl_oauth_token_provider=Tokens()
    ) as producer:
        await producer.send_and_wait("t", b"x")


MODULES = {"PLAIN": "plain.PlainLoginModule"}


@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
async def test_the_library_logs_in(broker: RunningBroker, mechanism: str, user: str, password: str) -> None:
    module = f"org.apache.kafka.common.security.{MODULES.get(mechanism, 'scram.ScramLoginModule')}"
    given = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }
    await write_and_read(given, 1)
    given["sasl.jaas.config"] = given["sasl.jaas.config"].replace('password="', 'password="not-')
    with pytest.raises(SaslAuthenticationFailed):
        await write_and_read(given, 1)


async def test_the_library_shows_a_fresh_token_when_the_old_one_expires(
    bearer_broker: RunningBroker, issuer: RSAKey, tmp_path: Path
) -> None:
    """The broker ends the session of a token with it. No record notices, while the file has a newer one."""
    file = tmp_path / "token"
    given = {
        "bootstrap.servers": bearer_broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }
    lifetime_s = 5
    renewed = 0

    async def renew() -> None:
        nonlocal renewed
        while True:
            fresh = tmp_path / "fresh"
            fresh.write_text(bearer(issuer, exp=int(time.time()) + lifetime_s)[0])
            fresh.replace(file)
            renewed += 1
            await asyncio.sleep(1)

    renewing = asyncio.create_task(renew())
    try:
        await asyncio.sleep(0)
        await write_and_read(given, 20, pause_s=lifetime_s / 10)
    finally:
        renewing.cancel()
    assert renewed > lifetime_s, "tokens have expired meanwhile"


async def write_and_read(given: dict[str, str], count: int, *, pause_s: float = 0) -> None:
    """Write records and read each, with one producer and one consumer of the library."""
    async with (
        barnabas.client.Producer(given, linger_ms=0) as producer,
        barnabas.client.Consumer(given) as consumer,
    ):
        first = (await producer.publish("t", b"first")).offset
        await consumer.assign([barnabas.client.TopicPartition("t", 0)])
        consumer.seek(barnabas.client.TopicPartition("t", 0), first + 1)
        for number in range(count):
            await producer.publish("t", b"%d" % number)
            assert (await consumer.get_one()).value == b"%d" % number
            await asyncio.sleep(pause_s)
