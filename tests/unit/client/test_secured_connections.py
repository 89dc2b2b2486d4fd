"""TLS and SASL in both shells, against the broker's side of each mechanism."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from tests.support.manual_time import ManualClock
from tests.support.scripted_broker import (
    SILENCE,
    Answer,
    Script,
    ScriptedBroker,
    broker_in_thread,
    scripted_broker,
)
from tests.support.scripted_sasl import Sasl, plain_users

from barnabas.client.aio.channel import Channel
from barnabas.client.blocking import Connection
from barnabas.client.security.settings import PLAINTEXT, Secured, SecuritySettings
from barnabas.core.errors import (
    InvalidConfig,
    NetworkException,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.security.credentials.scram_credential import KnownCredential, ScramCredential, ScramMechanism
from barnabas.security.identity.principal import KafkaPrincipal
from barnabas.security.sasl.client import Login, plain, scram
from barnabas.security.sasl.scram import CredentialLookup, ScramAuthentication

TIMEOUT_MS = 60_000


def scram_users() -> Sasl:
    credential = ScramCredential.derive(ScramMechanism.SHA_512, "s3cret")
    known = KnownCredential(credential, KafkaPrincipal.user("alice"))
    lookup = CredentialLookup(lambda *_: known, lambda *_: known)
    return Sasl(lambda: ScramAuthentication(ScramMechanism.SHA_512, lookup), "SCRAM-SHA-512")


ALICE = Secured(login=Login("PLAIN", lambda _: plain("alice", "s3cret")))


def by_scram(password: str) -> Secured:
    return Secured(login=Login("SCRAM-SHA-512", lambda _: scram("SCRAM-SHA-512", "alice", password)))


def connection(broker: ScriptedBroker, security: Secured, clock: ManualClock | None = None) -> Connection:
    return Connection.connect(
        broker.address,
        client_id="me",
        connect_timeout_ms=TIMEOUT_MS,
        request_timeout_ms=TIMEOUT_MS,
        security=security,
        clock=clock,
    )


def talk(broker: ScriptedBroker, security: Secured) -> str | None:
    opened = connection(broker, security)
    try:
        return opened.ask(MetadataRequest(), MetadataResponse).cluster_id
    finally:
        opened.close()


async def talk_async(broker: ScriptedBroker, security: Secured) -> str | None:
    channel = await Channel.connect(broker.address, security=security)
    try:
        return (await channel.send(MetadataRequest(), MetadataResponse)).cluster_id
    finally:
        await channel.finish()


TALKS = pytest.mark.parametrize(
    "talk",
    [talk, lambda broker, security: asyncio.run(talk_async(broker, security))],
    ids=["blocking", "channel"],
)
Talk = Callable[[ScriptedBroker, Secured], str | None]


@TALKS
@pytest.mark.parametrize(("sasl", "security"), [(plain_users, ALICE), (scram_users, by_scram("s3cret"))])
def test_the_right_password_logs_in(talk: Talk, sasl: Callable[[], Sasl], security: Secured) -> None:
    side = sasl()
    with broker_in_thread(side.script) as broker:
        assert talk(broker, security) == "c"
    assert side.handshakes == 1
    assert not side.early


@TALKS
def test_a_wrong_password_is_said_at_once_in_the_brokers_words(talk: Talk) -> None:
    with broker_in_thread(scram_users().script) as broker:
        with pytest.raises(
            SaslAuthenticationFailed, match=r"rejects the authentication: .*invalid credentials"
        ) as caught:
            talk(broker, by_scram("wr0ng"))
        assert "wr0ng" not in str(caught.value)


@TALKS
def test_a_mechanism_that_is_not_offered_is_named_with_those_that_are(talk: Talk) -> None:
    with (
        broker_in_thread(plain_users().script) as broker,
        pytest.raises(
            UnsupportedSaslMechanism, match=r"does not offer SASL mechanism SCRAM-SHA-512 .*it offers PLAIN"
        ),
    ):
        talk(broker, by_scram("s3cret"))


@TALKS
def test_a_broker_that_takes_anybody_but_proves_nothing_is_left(talk: Talk) -> None:
    side = scram_users()
    script: Script = {**side.script, ApiKey.SASL_AUTHENTICATE: lambda *_: SaslAuthenticateResponse()}
    with broker_in_thread(script) as broker, pytest.raises(SaslAuthenticationFailed, match="makes no sense"):
        talk(broker, by_scram("s3cret"))
    assert not side.early


# -- authentication that ends ----------------------------------------------------------------------


def test_a_blocking_connection_authenticates_again_before_its_time_is_over() -> None:
    side, clock = plain_users(lifetime_ms=10_000), ManualClock()
    with broker_in_thread(side.script) as broker:
        opened = connection(broker, ALICE, clock)
        clock.advance(8_400)
        opened.ask(MetadataRequest(), MetadataResponse)
        assert side.handshakes == 1
        opened.post(MetadataRequest(), MetadataResponse)
        clock.advance(1_200)
        opened.post(MetadataRequest(), MetadataResponse)
        assert side.handshakes == 2
        assert [opened.take().cluster_id for _ in range(2)] == ["c", "c"], (
            "what was posted before is not lost"
        )
        clock.advance(9_600)
        side.is_refused = True
        with pytest.raises(SaslAuthenticationFailed, match="not any more"):
            opened.ask(MetadataRequest(), MetadataResponse)
        assert opened.is_closed
    assert not side.early


async def test_a_channel_authenticates_again_and_holds_requests_meanwhile() -> None:
    side = plain_users(lifetime_ms=300)
    async with scripted_broker(side.script) as broker, asyncio.timeout(60):
        channel = await Channel.connect(broker.address, security=ALICE)
        posted: list[str | None] = []
        version = channel.version_for(MetadataRequest)
        while side.handshakes < 4:
            await channel.send(MetadataRequest(), MetadataResponse)
            channel.post(
                MetadataRequest(),
                MetadataResponse,
                version,
                answered=lambda answer: posted.append(answer.cluster_id),
                failed=lambda error: pytest.fail(str(error)),
                timeout_ms=TIMEOUT_MS,
            )
        await channel.send(MetadataRequest(), MetadataResponse)
        await channel.finish()
        assert set(posted) == {"c"}
    assert not side.early


async def test_a_channel_that_may_not_stay_closes_and_fails_what_waits() -> None:
    side = plain_users(lifetime_ms=200)
    failures: list[Exception] = []
    async with scripted_broker(side.script) as broker, asyncio.timeout(60):
        channel = await Channel.connect(broker.address, security=ALICE)
        side.is_refused = True
        version = channel.version_for(MetadataRequest)

        async def go_on() -> None:
            while True:
                await channel.send(MetadataRequest(), MetadataResponse)
                channel.post(
                    MetadataRequest(),
                    MetadataResponse,
                    version,
                    answered=lambda _: None,
                    failed=failures.append,
                    timeout_ms=TIMEOUT_MS,
                )

        with pytest.raises(NetworkException, match="not any more"):
            await go_on()
        assert channel.is_closed
    assert not side.early


async def test_a_channel_without_an_end_never_authenticates_again() -> None:
    side = plain_users()
    async with scripted_broker(side.script) as broker:
        channel = await Channel.connect(broker.address, security=ALICE)
        await channel.send(MetadataRequest(), MetadataResponse)
        assert channel._authenticates_again is None
        await channel.finish()


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server_side(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def trusting(authority: trustme.CA, **more: str) -> Secured:
    given = {"security.protocol": "SSL", "ssl.truststore.certificates": authority.cert_pem.bytes().decode()}
    return SecuritySettings.parse({**given, **more}).secured()


def metadata(_: object, __: int) -> Answer:
    return MetadataResponse(cluster_id="c")


@TALKS
def test_a_broker_that_is_trusted_is_talked_to(
    talk: Talk, authority: trustme.CA, server_side: ssl.SSLContext
) -> None:
    with broker_in_thread({ApiKey.METADATA: metadata}, server_side) as broker:
        assert talk(broker, trusting(authority)) == "c"


@TALKS
def test_a_broker_that_is_not_trusted_gets_nothing_and_no_second_try(
    talk: Talk, server_side: ssl.SSLContext
) -> None:
    with (
        broker_in_thread({ApiKey.METADATA: metadata}, server_side) as broker,
        pytest.raises(InvalidConfig, match=r"is not trusted .*check ssl\.truststore\.location"),
    ):
        talk(broker, trusting(trustme.CA()))


@TALKS
def test_a_certificate_of_another_host_is_not_taken(talk: Talk, authority: trustme.CA) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("elsewhere.example").configure_cert(context)
    with broker_in_thread({ApiKey.METADATA: metadata}, context) as broker:
        with pytest.raises(InvalidConfig, match=r"is not valid for '127\.0\.0\.1'"):
            talk(broker, trusting(authority))
        assert talk(broker, trusting(authority, **{"ssl.endpoint.identification.algorithm": ""})) == "c"


@TALKS
def test_a_broker_without_tls_is_not_reached_with_it(talk: Talk, authority: trustme.CA) -> None:
    with (
        broker_in_thread({ApiKey.METADATA: metadata}) as broker,
        pytest.raises(NetworkException, match="cannot reach"),
    ):
        talk(broker, trusting(authority))


@TALKS
def test_a_client_without_tls_is_not_kept_waiting(talk: Talk, server_side: ssl.SSLContext) -> None:
    with (
        broker_in_thread({ApiKey.METADATA: metadata}, server_side) as broker,
        pytest.raises(NetworkException),
    ):
        talk(broker, PLAINTEXT)


@TALKS
def test_a_broker_that_asks_for_a_certificate_gets_the_key_stores(
    talk: Talk, authority: trustme.CA, tmp_path: Path
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    store = tmp_path / "client.pem"
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(str(store))
    with broker_in_thread({ApiKey.METADATA: metadata}, context) as broker:
        assert talk(broker, trusting(authority, **{"ssl.keystore.location": str(store)})) == "c"
        with pytest.raises(NetworkException):
            talk(broker, trusting(authority))


def test_a_handshake_that_is_not_answered_ends_in_time(authority: trustme.CA) -> None:
    with broker_in_thread({ApiKey.METADATA: lambda *_: SILENCE}) as broker:

        async def connect() -> None:
            async with asyncio.timeout(60):
                await Channel.connect(broker.address, security=trusting(authority), connect_timeout_ms=200)

        with pytest.raises(NetworkException, match="cannot reach"):
            asyncio.run(connect())
