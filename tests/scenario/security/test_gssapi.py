"""GSSAPI with a real Kerberos: a client of kafka-python with a ticket, and one by hand that cheats."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.aio.channel import Channel
from barnabas.client.security.settings import SecuritySettings
from barnabas.cluster.stores.topics import create_topic
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import InvalidConfig, SaslAuthenticationFailed, TopicAuthorizationFailed
from barnabas.core.ids import Uuid
from barnabas.node.security.inter_broker_security import inter_broker_settings
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.testing.broker import RunningBroker
from tests.scenario.replication.support import eventually
from tests.scenario.security.callers import AUTHORIZER
from tests.scenario.security.sasl_broker import sasl_broker
from tests.scenario.security.test_brokers_among_each_other import SESSION_MS, client_of, end_of, member
from tests.scenario.security.test_sasl_refusals import (
    AUTHENTICATION_FAILED,
    SASL_AUTHENTICATE,
    connect,
    is_closed,
    shake_hands,
)
from tests.support.embedded_cluster import shared_store
from tests.support.kerberos import Kerberos, running_kerberos
from tests.support.plain_producer import OutgoingRecord, Producer
from tests.support.wire import WireConnection

pytestmark = pytest.mark.rest

_TOPIC = CreatableTopic(name="mine", num_partitions=1, replication_factor=1)
CLIENT = """
import sys
from kafka import KafkaConsumer, KafkaProducer
options = {
    "bootstrap_servers": sys.argv[1],
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "GSSAPI",
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": "localhost",
}
producer = KafkaProducer(**options)
producer.send("orders", b"by ticket").get(30)
producer.close()
consumer = KafkaConsumer("orders", auto_offset_reset="earliest", consumer_timeout_ms=30_000, **options)
print(next(consumer).value.decode())
consumer.close()
"""


@pytest.fixture(scope="module")
def kerberos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kerberos]:
    with (
        running_kerberos(tmp_path_factory.mktemp("kerberos")) as kerberos,
        pytest.MonkeyPatch.context() as env,
    ):
        for name, value in kerberos.environment.items():
            env.setenv(name, value)
        yield kerberos


def jaas(keytab: object, principal: str = "kafka/localhost@EXAMPLE.COM") -> dict[str, str]:
    module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
    return {
        "sasl.enabled.mechanisms": "PLAIN,GSSAPI",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": (
            f'{module} keyTab="{keytab}" principal="{principal}";'
        ),
    }


@pytest.fixture(scope="module")
def broker(kerberos: Kerberos) -> Iterator[RunningBroker]:
    settings = {
        **jaas(kerberos.keytab("kafka/localhost")),
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](guest.*)s/guest/visitor/,DEFAULT",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin;User:alice;User:visitor1",
        "connection.failed.authentication.delay.ms": "0",
        "num.partitions": "1",
    }
    with sasl_broker(settings) as broker:
        yield broker


@pytest.mark.parametrize("user", ["alice", "guest1"])
def test_who_has_a_ticket_is_its_principal(kerberos: Kerberos, broker: RunningBroker, user: str) -> None:
    """Only they may write, by their short names."""
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, broker.bootstrap],
        env={**os.environ, **kerberos.ticket(user)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.stdout == "by ticket\n", done.stderr


@pytest.mark.parametrize("by", ["keytab", "ticket", "the broker's own settings"])
async def test_our_own_client_has_a_key_or_a_ticket(
    kerberos: Kerberos, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """The broker's settings for its own listener are read as a client's, too."""
    user = f"own-{by[:3]}"
    module = "com.sun.security.auth.module.Krb5LoginModule required"
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
    }
    if by == "ticket":
        monkeypatch.setenv("KRB5CCNAME", kerberos.ticket(user)["KRB5CCNAME"])
        settings = SecuritySettings.parse({**given, "sasl.jaas.config": f"{module} useTicketCache=true;"})
    elif by == "keytab":
        text = f'{module} useKeyTab=true keyTab="{kerberos.keytab(user)}" principal="{user}@EXAMPLE.COM";'
        settings = SecuritySettings.parse({**given, "sasl.jaas.config": text})
    else:
        own = {"listeners": "SASL_PLAINTEXT://:0", "sasl.mechanism.inter.broker.protocol": "GSSAPI"}
        own |= {**jaas(kerberos.keytab(user), f"{user}@EXAMPLE.COM"), "sasl.kerberos.service.name": "kafka"}
        settings = inter_broker_settings(BrokerConfig.load(own))
    address = Endpoint("localhost", Endpoint.parse(broker.bootstrap).port)
    channel = await Channel.connect(address, security=settings.secured())
    answer = await channel.send(CreateTopicsRequest(topics=[_TOPIC], timeout_ms=10_000), CreateTopicsResponse)
    assert answer.topics[0].error_code == TopicAuthorizationFailed.code, "it is known, and may do nothing"
    channel.close()


async def test_a_follower_logs_in_to_its_leader_by_kerberos_again_and_again(
    kerberos: Kerberos, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    more = {
        **jaas(kerberos.keytab("kafka/127.0.0.1"), "kafka/127.0.0.1@EXAMPLE.COM"),
        "sasl.kerberos.service.name": "kafka",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
    }
    async with shared_store(tmp_path, monkeypatch) as store, AsyncExitStack() as stack:
        brokers = [member(tmp_path, number, **more) for number in (1, 2)]
        for each in brokers:
            await each.startup()
            stack.push_async_callback(each.shutdown)
        await create_topic(store.connect(), "t", Uuid(bytes(range(16))), {0: [1, 2]}, {})
        producer = Producer(await stack.enter_async_context(client_of(*brokers)))
        for number in range(1, 4):
            assert await producer.send("t", [OutgoingRecord(None, b"x")]) == 1
            await eventually(lambda number=number: {end_of(each) for each in brokers} == {number})  # type: ignore[misc]
            await asyncio.sleep(0.6 * SESSION_MS / 1_000)


async def test_a_broker_that_has_not_the_key_of_its_name_is_not_believed(
    kerberos: Kerberos, broker: RunningBroker
) -> None:
    module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"
    text = f'{module} keyTab="{kerberos.keytab("trusting")}" principal="trusting@EXAMPLE.COM";'
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.jaas.config": text}
    settings = SecuritySettings.parse({**given, "sasl.kerberos.service.name": "nobody"})
    with pytest.raises(SaslAuthenticationFailed, match="GSSAPI"):
        await Channel.connect(Endpoint.parse(broker.bootstrap), security=settings.secured())
    with pytest.raises(InvalidConfig, match=r"needs sasl\.kerberos\.service\.name"):
        SecuritySettings.parse(given).secured()


def show(wire: WireConnection, token: bytes) -> tuple[int, bytes]:
    reader = wire.ask(SASL_AUTHENTICATE, 1, struct.pack(">i", len(token)) + token)
    code, _ = reader.number("h"), reader.string()
    return code, reader.byte_string() or b""


def established(wire: WireConnection, service: str = "kafka@localhost") -> Any:
    """A context of ours, with the broker's offer of layers unwrapped."""
    import gssapi

    name = gssapi.Name(service, gssapi.NameType.hostbased_service)
    context = gssapi.SecurityContext(name=name, usage="initiate", mech=gssapi.MechType.kerberos)
    assert shake_hands(wire, "GSSAPI") == 0
    code, answer = show(wire, context.step())
    assert code == 0
    assert context.step(answer) is None
    code, offer = show(wire, b"")
    assert (code, context.unwrap(offer).message) == (0, b"\x01\0\0\0")
    return context


@pytest.fixture(scope="module")
def mallory(kerberos: Kerberos) -> str:
    """Location of the ticket of a user without rights."""
    return kerberos.ticket("mallory")["KRB5CCNAME"]


@pytest.mark.parametrize("choice", [b"\x02\0\0\0", b"\x04\0\0\0", b""])
def test_no_other_layer(
    broker: RunningBroker, mallory: str, monkeypatch: pytest.MonkeyPatch, choice: bytes
) -> None:
    monkeypatch.setenv("KRB5CCNAME", mallory)
    with connect(broker) as wire:
        context = established(wire)
        assert show(wire, context.wrap(choice, False).message)[0] == AUTHENTICATION_FAILED
        assert is_closed(wire)


@pytest.mark.parametrize("name", ["", "admin", "alice@EXAMPLE.COM"])
def test_no_client_acts_as_another_user(
    broker: RunningBroker, mallory: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("KRB5CCNAME", mallory)
    with connect(broker) as wire:
        context = established(wire)
        assert show(wire, context.wrap(b"\x01\0\0\0" + name.encode(), False).message)[0] == 0
        assert wire.create_topic("mallorys") == TopicAuthorizationFailed.code


@pytest.mark.parametrize("token", [b"", b"x", b"\x60\x82\x01\x00kerberos", bytes(1_000)])
def test_what_is_no_ticket_is_refused(broker: RunningBroker, token: bytes) -> None:
    with connect(broker) as wire:
        assert shake_hands(wire, "GSSAPI") == 0
        assert show(wire, token)[0] == AUTHENTICATION_FAILED
        assert is_closed(wire)


def test_a_broker_without_its_key_does_not_start(kerberos: Kerberos) -> None:
    keytab = kerberos.keytab("other/localhost")
    for settings, hint in (
        (jaas(keytab), "no key for kafka/localhost"),
        (jaas(kerberos.directory / "missing"), "is not a file"),
    ):
        with pytest.raises(InvalidConfig, match=hint), sasl_broker(settings):
            pass
