"""Clients of other makers with tickets: Java's, and librdkafka as Debian builds it. That of the wheel has no
Kerberos."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from barnabas.testing.broker import RunningBroker, run_broker
from tests.clients.programs import ProgramUnavailable, run
from tests.clients.secured.test_programs import BUILD_AND_RUN_TIMEOUT_S, JAVA, PATIENCE_MS, SHOWN
from tests.support.kerberos import REALM, Kerberos, running_kerberos

MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
SESSION_MS = 2_000
USERS = ("duke", "kitty")


@dataclass
class Kerberized:
    kerberos: Kerberos
    broker: RunningBroker
    keytabs: Mapping[str, Path]


@pytest.fixture(scope="module")
def kerberized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kerberized]:
    """A client with a ticket may do everything; a session lasts two seconds."""
    with (
        running_kerberos(tmp_path_factory.mktemp("kerberos")) as kerberos,
        pytest.MonkeyPatch.context() as env,
    ):
        for name, value in kerberos.environment.items():
            env.setenv(name, value)
        jaas = f'{MODULE} keyTab="{kerberos.keytab("kafka/localhost")}" principal="kafka/localhost@{REALM}";'
        settings = {
            "listeners": "SASL_PLAINTEXT://localhost:0",
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.mechanism.inter.broker.protocol": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas,
            "connections.max.reauth.ms": str(SESSION_MS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(f"User:{each}" for each in (*USERS, "kafka")),
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
        }
        with run_broker(settings) as broker:
            yield Kerberized(kerberos, broker, {user: kerberos.keytab(user) for user in USERS})


@pytest.mark.java
@pytest.mark.timeout(BUILD_AND_RUN_TIMEOUT_S)
def test_java(kerberized: Kerberized, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f'sasl.jaas.config={MODULE} keyTab="{kerberized.keytabs["duke"]}" principal="duke@{REALM}";\n'
    )
    environment = {
        "JDK_JAVA_OPTIONS": f"-Djava.security.krb5.conf={kerberized.kerberos.directory / 'krb5.conf'}"
    }
    bootstrap = kerberized.broker.bootstrap
    try:
        outcome = run(JAVA, bootstrap, "kerberos", dict.fromkeys(SHOWN, PATIENCE_MS), properties, environment)
    except ProgramUnavailable as reason:
        pytest.skip(f"{JAVA.client} cannot be run here: {reason}")
    assert {
        name: outcome.results.get(name, ("silent", outcome.complaint)) for name in SHOWN
    } == dict.fromkeys(SHOWN, ("ok", ""))


@pytest.mark.parametrize("has_ticket", [True, False])
def test_kcat(kerberized: Kerberized, tmp_path: Path, has_ticket: bool) -> None:
    program = shutil.which("kcat")
    if program is None:
        pytest.skip("there is no kcat, which Debian has with Kerberos, in its librdkafka and libsasl2")
    features = subprocess.run([program, "-V"], capture_output=True, text=True, check=False, timeout=60)
    if "sasl_gssapi" not in features.stdout + features.stderr:
        pytest.skip("kcat was built without Kerberos")
    tickets = {"KRB5CCNAME": f"FILE:{tmp_path / 'tickets'}"}
    if has_ticket:
        keytab = str(kerberized.keytabs["kitty"])
        kerberized.kerberos.run("kinit", "-k", "-t", keytab, "-c", tickets["KRB5CCNAME"], "kitty")
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.kinit.cmd": "true",  # by the ticket that is there
        "message.timeout.ms": "60000" if has_ticket else "5000",
    }
    given = [part for key, value in settings.items() for part in ("-X", f"{key}={value}")]
    ask = [program, "-b", kerberized.broker.bootstrap, *given]
    topic = f"kitty-{has_ticket}".lower()

    def said(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*ask, *arguments],
            input=text,
            env={**os.environ, **tickets},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    written = said("-P", "-t", topic, text="by ticket\n")
    if "missing a GSSAPI module" in written.stderr:
        pytest.skip("kcat finds no module for Kerberos; Debian has it in libsasl2-modules-gssapi-mit")
    assert (written.returncode == 0) == has_ticket, written.stderr
    if has_ticket:
        read = said("-C", "-t", topic, "-o", "beginning", "-e", "-q")
        assert read.stdout == "by ticket\n", read.stderr


def test_confluent(kerberized: Kerberized) -> None:
    """Whether the wheel has learnt it: then it belongs to the clients that are tried here."""
    settings = {
        "bootstrap.servers": kerberized.broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": "kitty",
        "sasl.kerberos.keytab": str(kerberized.keytabs["kitty"]),
    }
    try:
        producer = Producer(settings)
    except KafkaException as error:
        pytest.skip(f"confluent-kafka has no Kerberos here: {error.args[0].str()}")
    producer.produce("kitty-by-wheel", b"by ticket")
    assert producer.flush(60) == 0
