"""Visitors who are known by a client certificate or a bearer token: real TLS, real brokers, real tokens."""

from __future__ import annotations

import datetime as dt
import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from joserfc import jwt
from joserfc.jwk import RSAKey

from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.sync.admin import Admin
from barnabas.config.properties import render_properties
from barnabas.security.acl.bindings import AccessRule, AclBinding, ResourcePattern
from barnabas.security.acl.vocabulary import Operation, Permission, ResourceType
from tests.support.console import RunningConsole, form_token, running_console, submit, words
from tests.support.secured_broker import ADMIN, MODULE, USERS, SecuredBroker, secured_broker
from tests.support.waiting import eventually

ISSUER = {"iss": "https://issuer", "aud": "kafka"}
CONSOLE = "page"
PASSWORD = "pages-own-secret"


@dataclass
class World:
    broker: SecuredBroker
    directory: Path
    authority: trustme.CA
    issuer: RSAKey

    def admin(self) -> Admin:
        return Admin({"bootstrap.servers": self.broker.bootstrap, **self.broker.settings(ADMIN)})

    def client_file(self, name: str, settings: dict[str, str]) -> str:
        file = self.directory / f"{name}.properties"
        file.write_text(render_properties(settings))
        return str(file)

    def token(self, key: RSAKey | None = None, **claims: Any) -> str:
        said = {"sub": "alice", "exp": int(time.time()) + 300, **ISSUER, **claims}
        return jwt.encode({"alg": "RS256", "kid": "k"}, said, key or self.issuer)

    def context(self, certificate: Path | None = None) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(self.broker.ca))
        if certificate is not None:
            made.load_cert_chain(str(certificate))
        return made

    def certificate(self, user: str, authority: trustme.CA | None = None, **more: Any) -> Path:
        issued = (authority or self.authority).issue_cert(f"{user}@test", common_name=user, **more)
        file = self.directory / f"{user}-{len(list(self.directory.iterdir()))}.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(str(file))
        return file


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("proofs")
    issuer = RSAKey.generate_key(2048, {"kid": "k"})
    keys = directory / "keys.json"
    keys.write_text(json.dumps({"keys": [issuer.as_dict(private=False)]}))
    users = " ".join(f'user_{name}="{text}"' for name, text in {**USERS, CONSOLE: PASSWORD}.items())
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{MODULE} username="{ADMIN}" password="{USERS[ADMIN]}" {users};'
        ),
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER["iss"],
        "sasl.oauthbearer.expected.audience": ISSUER["aud"],
        "delegation.token.secret.key": "a-secret-of-the-test",
    }
    with secured_broker(directory, settings) as broker:
        made = World(broker, directory, trustme.CA(), issuer)
        made.authority.cert_pem.write_to_path(str(directory / "visitors.pem"))
        with made.admin() as admin:
            admin.create_topics([NewTopic("alices", 1), NewTopic("bobs", 1)])
            admin.create_acls(
                [
                    rule(ResourceType.TOPIC, "alices", "alice", Operation.ALL),
                    rule(ResourceType.TOPIC, "bobs", "bob", Operation.ALL),
                    rule(ResourceType.USER, "User:alice", CONSOLE, Operation.CREATE_TOKENS),
                ]
            )
        yield made


def rule(kind: ResourceType, name: str, user: str, operation: Operation) -> AclBinding:
    return AclBinding(
        ResourcePattern(kind, name), AccessRule(f"User:{user}", "*", operation, Permission.ALLOW)
    )


@pytest.fixture(scope="module")
def by_bearer(world: World) -> Iterator[RunningConsole]:
    """A console whose visitors show tokens, or sign in by PLAIN."""
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(world.broker.ca),
        "listener.name.console.sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
    }
    file = world.client_file("bearer", settings)
    with running_console(world.broker.bootstrap, before=["--command-config", file]) as console:
        yield console


@pytest.fixture(scope="module")
def by_certificate(world: World) -> Iterator[RunningConsole]:
    file = world.client_file("certificate", certificate_settings(world))
    with running_console(world.broker.bootstrap, before=["--command-config", file]) as console:
        yield console


def certificate_settings(world: World) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(world.broker.ca),
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{MODULE} username="{CONSOLE}" password="{PASSWORD}";',
        "listener.name.console.ssl.keystore.location": str(world.directory / "broker.pem"),
        "listener.name.console.ssl.truststore.location": str(world.directory / "visitors.pem"),
        "listener.name.console.ssl.client.auth": "requested",
        "listener.name.console.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+).*$/$1/",
    }


def topics_of(client: httpx.Client, **headers: str) -> list[str]:
    answer = client.get("/api/topics", headers=headers)
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()["rows"] if not each["name"].startswith("__")]


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


# --- bearer tokens ---


def test_a_token_of_a_proxy_is_handed_to_the_brokers(world: World, by_bearer: RunningConsole) -> None:
    with by_bearer.client() as client:
        answer = client.get("/topics", headers=bearer(world.token()))
        assert answer.status_code == 200
        assert "alices" in words(answer)
        assert "bobs" not in words(answer)
        assert "set-cookie" not in answer.headers
        assert "Sign out" not in words(answer)
        assert topics_of(client, **bearer(world.token())) == ["alices"]
        assert topics_of(client, **bearer(world.token(sub="bob"))) == ["bobs"]
        assert client.get("/api/topics").status_code == 401, "no token, no session"


def test_a_pasted_token_signs_in(world: World, by_bearer: RunningConsole) -> None:
    with by_bearer.client() as client:
        refused = submit(client, "/sign-in", "/sign-in", bearer=world.token(aud="another"))
        assert "refused this token" in words(refused)
        inside = submit(client, "/sign-in", "/sign-in", bearer=world.token())
        assert inside.url.path == "/"
        assert topics_of(client) == ["alices"]
        assert submit(client, "/", "/sign-out").url.path == "/sign-in"
    with by_bearer.client() as client:
        submit(client, "/sign-in", "/sign-in", user="bob", password=USERS["bob"])
        assert topics_of(client) == ["bobs"]


def test_tokens_that_prove_nothing_are_refused(world: World, by_bearer: RunningConsole) -> None:
    other = RSAKey.generate_key(2048, {"kid": "k"})
    good = world.token()
    head, claims, signature = good.split(".")
    bad = {
        "expired": world.token(exp=int(time.time()) - 10),
        "another key": world.token(other),
        "another audience": world.token(aud="another"),
        "no signature": f"{head}.{claims}.",
        "other claims": f"{head}.{world.token(sub='admin').split('.')[1]}.{signature}",
        "not a token": "x",
        "a reference": "${file:/etc/passwd:root}",
        "a quote": 'a.b.c" username="admin',
        "too long": "a" * 14_000,
        "two words": "a.b.c d.e.f",
    }
    with by_bearer.client() as client:
        for name, token in bad.items():
            for path in ("/api/topics", "/topics"):
                answer = client.get(path, headers={"authorization": f"Bearer {token}"})
                assert answer.status_code == 401, name
                assert "invalid_token" in answer.headers["www-authenticate"]
                assert "set-cookie" not in answer.headers
                assert "alices" not in answer.text
        assert topics_of(client, **bearer(good)) == ["alices"]


def test_a_session_ends_with_its_token(world: World, by_bearer: RunningConsole) -> None:
    short = world.token(exp=int(time.time()) + 4)
    with by_bearer.client() as client, by_bearer.client() as pasted:
        assert topics_of(client, **bearer(short)) == ["alices"]
        submit(pasted, "/sign-in", "/sign-in", bearer=short)
        assert topics_of(pasted) == ["alices"]
        eventually(lambda: pasted.get("/api/topics").status_code == 401, "the session ends")
        assert client.get("/api/topics", headers=bearer(short)).status_code == 401


def test_a_token_counts_more_than_a_cookie(world: World, by_bearer: RunningConsole) -> None:
    """A browser behind a proxy changes its user: the cookie of the user before must not decide."""
    with by_bearer.client() as client:
        submit(client, "/sign-in", "/sign-in", user="bob", password=USERS["bob"])
        assert topics_of(client, **bearer(world.token())) == ["alices"]
        assert client.get("/api/topics", headers=bearer("x")).status_code == 401
        assert topics_of(client) == ["bobs"]


def test_a_change_by_token_needs_the_form_of_its_session(world: World, by_bearer: RunningConsole) -> None:
    """A proxy adds the header to a forged request too, so the form's token is asked for all the same."""
    with by_bearer.client() as client:
        headers = bearer(world.token())
        path = "/topics/alices/produce"
        assert client.post(path, headers=headers, data={"value": "forged"}).status_code == 403
        token = form_token(client.get(path, headers=headers))
        other = form_token(client.get("/topics/bobs/produce", headers=bearer(world.token(sub="bob"))))
        forged = client.post(path, headers=headers, data={"value": "x", "form_token": other})
        assert forged.status_code == 403
        sent = client.post(path, headers=headers, data={"value": "said", "form_token": token})
        assert sent.status_code == 303
        assert "said" in words(client.get(sent.headers["location"], headers=headers))


# --- certificates ---


def test_a_certificate_names_the_user_for_whom_the_console_acts(
    world: World, by_certificate: RunningConsole
) -> None:
    alice = world.context(world.certificate("alice"))
    with by_certificate.client(verify=alice) as client:
        page = client.get("/topics")
        assert page.status_code == 200, words(page)
        assert "alices" in words(page)
        assert "bobs" not in words(page)
        assert "set-cookie" not in page.headers
        assert topics_of(client) == ["alices"]
        sent = submit(client, "/topics/alices/produce", "/topics/alices/produce", value="by certificate")
        assert "by certificate" in words(sent)
        token = form_token(client.get("/topics/alices/produce"))
        refused = client.post("/new-topic", data={"name": "forbidden", "form_token": token})
        assert refused.status_code == 403
    with by_certificate.client(verify=alice) as client:
        assert topics_of(client) == ["alices"]
    with world.admin() as admin:
        mine = [each for each in admin.describe_delegation_tokens() if str(each.owner) == "User:alice"]
        assert len(mine) == 1, "all requests of a user share one token"
        assert mine[0].max_ms - mine[0].issued_ms <= 3_600_000
        assert str(mine[0].renewers[0]) == f"User:{CONSOLE}"


def test_a_certificate_that_the_brokers_give_no_token_for_is_refused(
    world: World, by_certificate: RunningConsole
) -> None:
    with by_certificate.client(verify=world.context(world.certificate("bob"))) as client:
        assert client.get("/topics").status_code == 401
        answer = client.get("/api/topics")
        assert answer.status_code == 401
        assert "bobs" not in answer.text
    admin = world.certificate("admin")
    with by_certificate.client(verify=world.context(admin)) as client:
        assert client.get("/api/topics").status_code == 401, "CreateTokens was given for alice alone"


def test_a_certificate_that_no_rule_maps_names_nobody(world: World, by_certificate: RunningConsole) -> None:
    """Its stand-in name for the audit log, `certificate`, is no user."""
    with by_certificate.client(verify=world.context(world.certificate("0000"))) as client:
        assert client.get("/topics").headers["location"] == "/sign-in"
        assert client.get("/api/topics").status_code == 401


def test_certificates_of_another_authority_or_time_do_not_get_in(
    world: World, by_certificate: RunningConsole
) -> None:
    past = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    for bad in (
        world.certificate("alice", trustme.CA()),
        world.certificate("alice", not_after=past),
    ):
        with by_certificate.client(verify=world.context(bad)) as client:
            with pytest.raises((httpx.TransportError, ssl.SSLError)):
                client.get("/api/topics")


def test_a_connection_outlives_its_certificate_without_a_user(
    world: World, by_certificate: RunningConsole
) -> None:
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=6)
    short = world.context(world.certificate("alice", not_after=soon))
    with by_certificate.client(verify=short) as client:
        assert topics_of(client) == ["alices"]
        with by_certificate.client(verify=world.context(world.certificate("alice"))) as other:
            eventually(lambda: client.get("/api/topics").status_code == 401, "the certificate ends")
            assert topics_of(other) == ["alices"], "her other certificate is good"


FORGED = {
    "x-forwarded-user": "alice",
    "x-remote-user": "alice",
    "remote-user": "alice",
    "x-forwarded-client-cert": 'Hash=0;Subject="CN=alice"',
    "x-ssl-client-dn": "CN=alice",
    "x-ssl-client-verify": "SUCCESS",
    "x-client-cert": "CN=alice",
    "client-cert": ":Q049YWxpY2U=:",
    "x-forwarded-proto": "https",
    "x-forwarded-for": "127.0.0.1",
    "barnabas.client_certificate": "alice",
}


def test_headers_that_describe_a_user_or_a_certificate_say_nothing(
    world: World, by_certificate: RunningConsole, by_bearer: RunningConsole
) -> None:
    with by_certificate.client(verify=world.context()) as client:
        assert client.get("/api/topics", headers=FORGED).status_code == 401
        assert client.get("/topics", headers=FORGED).headers["location"] == "/sign-in"
        assert client.get("/api/topics", headers=bearer(world.token())).status_code == 401, (
            "not offered there"
        )
    with by_certificate.client(verify=world.context(world.certificate("bob"))) as client:
        assert client.get("/api/topics", headers=FORGED).status_code == 401
    with by_bearer.client() as client:
        assert client.get("/api/topics", headers=FORGED).status_code == 401


def test_two_authorizations_are_refused(world: World, by_bearer: RunningConsole) -> None:
    """Two parties could each believe another one of them."""
    token = world.token()
    with by_bearer.client() as client:
        two = [("authorization", f"Bearer {token}"), ("authorization", f"Bearer {world.token(sub='bob')}")]
        assert client.get("/api/topics", headers=two).status_code == 400
        folded = f"Bearer {token}, Bearer {world.token(sub='bob')}"
        assert client.get("/api/topics", headers={"authorization": folded}).status_code == 401


def test_a_cookie_of_one_visitor_is_nothing_beside_a_certificate_of_another(
    world: World, by_certificate: RunningConsole
) -> None:
    alice = world.context(world.certificate("alice"))
    with by_certificate.client(verify=world.context()) as stranger:
        page = stranger.get("/sign-in")
        assert "client certificate" in words(page)
        with by_certificate.client(verify=alice, cookies=dict(stranger.cookies)) as client:
            assert topics_of(client) == ["alices"]
        assert stranger.get("/api/topics").status_code == 401, "her request did not sign the cookie in"


def test_a_session_cannot_be_put_into_a_browser(world: World, by_certificate: RunningConsole) -> None:
    """With TLS the cookie has a name that browsers take from this origin alone."""
    with by_certificate.client(verify=world.context()) as client:
        given = client.get("/sign-in").headers["set-cookie"]
        assert given.startswith("__Host-barnabas_console=")
        for word in ("Secure", "HttpOnly", "SameSite=strict", "Path=/"):
            assert word in given
        assert "Domain" not in given
        own = client.cookies["__Host-barnabas_console"]
        for planted in ({"barnabas_console": own}, {"__Host-barnabas_console": "known-before"}):
            with by_certificate.client(verify=world.context(), cookies=planted) as other:
                answer = other.get("/sign-in")
                assert answer.headers["set-cookie"].partition(";")[0].partition("=")[2] not in (
                    own, "known-before"
                )  # fmt: skip


def test_the_token_is_expired_when_the_console_stops(world: World) -> None:
    settings = certificate_settings(world)
    file = world.client_file("stopping", {**settings, "listener.name.console.ssl.client.auth": "required"})

    def known() -> set[str]:
        with world.admin() as admin:
            return {each.token_id for each in admin.describe_delegation_tokens()}

    before = known()
    with running_console(world.broker.bootstrap, before=["--command-config", file]) as console:
        with console.client(verify=world.context()) as client, pytest.raises(httpx.TransportError):
            client.get("/")
        with console.client(verify=world.context(world.certificate("alice"))) as client:
            assert topics_of(client) == ["alices"]
        assert len(known() - before) == 1
    assert known() <= before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sasl.jaas.config": ""}, "delegation tokens"),
        ({"listener.name.console.ssl.truststore.location": ""}, "certificates to check clients against"),
        ({"listener.name.console.ssl.keystore.location": ""}, "needs TLS"),
        ({"listener.name.console.sasl.enabled.mechanisms": "GSSAPI"}, "cannot sign in with GSSAPI"),
        ({}, "leave one of them out"),
    ],
)
def test_settings_that_cannot_go_together_are_refused(
    world: World, change: dict[str, str], said: str
) -> None:
    settings = {name: text for name, text in {**certificate_settings(world), **change}.items() if text}
    file = world.client_file("refused", settings)
    arguments = [] if change else ["--token", "shared"]
    with pytest.raises(RuntimeError, match=said):
        with running_console(world.broker.bootstrap, *arguments, before=["--command-config", file]):
            pass
