"""One broker on which every client authenticates, with each mechanism, and the settings of the clients.

Two listeners: SSL, which asks for a certificate, and SASL_SSL with each mechanism. The access rules let users
do everything with resources whose names begin with `secured`. A session lasts two seconds, so that longer
connections authenticate again.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from joserfc import jwt
from joserfc.jwk import RSAKey

from barnabas.testing.broker import RunningBroker, run_broker

TIMEOUT_S = 60.0
SESSION_MS = 2_000
PREFIX = "secured"
ADMIN, PASSWORD = "admin", "admin-secret"
TLS, PLAIN, SCRAM_256, SCRAM_512, BEARER = LOGINS = (
    "SSL",
    "PLAIN",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
    "OAUTHBEARER",
)
"""A certificate, and the mechanisms of SASL."""
ISSUER = {"iss": "https://issuer", "aud": "kafka"}
JAAS = "org.apache.kafka.common.security"


@dataclass
class Secured:
    running: RunningBroker
    directory: Path
    issuer: RSAKey

    @property
    def ca(self) -> str:
        return str(self.directory / "ca.pem")

    @property
    def certificate(self) -> str:
        return str(self.directory / "user.pem")

    @property
    def token_file(self) -> Path:
        return self.directory / "token"

    def java_environment(self, login: str) -> dict[str, str]:
        """A JVM reads a token only from a file that was named at its start."""
        if login != BEARER:
            return {}
        allowed = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
        return {"JDK_JAVA_OPTIONS": f"-D{allowed}={self.token_file.as_uri()}"}

    def bootstrap(self, login: str) -> str:
        by_tls, by_sasl = self.running.bootstrap.split(",")
        return by_tls if login == TLS else by_sasl

    def token(self) -> tuple[str, float]:
        ends_s = time.time() + 300
        claims = {"sub": "user", "exp": int(ends_s), **ISSUER}
        return jwt.encode({"alg": "RS256", "kid": "k"}, claims, self.issuer), ends_s

    def confluent(self, login: str, user: str = "user", password: str = PASSWORD) -> dict[str, Any]:
        """librdkafka's properties."""
        found: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap(login),
            "security.protocol": "SSL" if login == TLS else "SASL_SSL",
            "ssl.ca.location": self.ca,
            "log_level": 0,
        }
        if login == TLS:
            return found | dict.fromkeys(("ssl.certificate.location", "ssl.key.location"), self.certificate)
        found["sasl.mechanism"] = login
        if login == BEARER:
            return found | {"oauth_cb": lambda _: self.token()}
        return found | {"sasl.username": user, "sasl.password": password}

    def python(self, login: str) -> dict[str, Any]:
        """Common settings of kafka-python and aiokafka; a token is shown by a class of their own."""
        context = ssl.create_default_context(cafile=self.ca)
        if login == TLS:
            context.load_cert_chain(self.certificate)
        found: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap(login),
            "security_protocol": "SSL" if login == TLS else "SASL_SSL",
            "ssl_context": context,
        }
        if login not in (TLS, BEARER):
            found |= {"sasl_plain_username": "user", "sasl_plain_password": PASSWORD}
        return found if login == TLS else found | {"sasl_mechanism": login}

    def properties(self, login: str, user: str = "user") -> Path:
        """A file for Java's clients and tools."""
        lines = [
            f"security.protocol={'SSL' if login == TLS else 'SASL_SSL'}",
            f"ssl.truststore.location={self.ca}",
            "ssl.truststore.type=PEM",
        ]
        if login == TLS:
            lines += [f"ssl.keystore.location={self.certificate}", "ssl.keystore.type=PEM"]
        elif login == BEARER:
            self.token_file.write_text(self.token()[0])
            lines += [
                f"sasl.mechanism={login}",
                f"sasl.oauthbearer.token.endpoint.url={self.token_file.as_uri()}",
                f"sasl.jaas.config={JAAS}.oauthbearer.OAuthBearerLoginModule required;",
                f"sasl.login.callback.handler.class={JAAS}.oauthbearer.OAuthBearerLoginCallbackHandler",
            ]
        else:
            module = "plain.PlainLoginModule" if login == PLAIN else "scram.ScramLoginModule"
            lines += [
                f"sasl.mechanism={login}",
                f'sasl.jaas.config={JAAS}.{module} required username="{user}" password="{PASSWORD}";',
            ]
        path = self.directory / f"{login}-{user}.properties"
        path.write_text("\n".join(lines) + "\n")
        return path


@contextmanager
def secured_broker(directory: Path) -> Iterator[Secured]:
    issuer = RSAKey.generate_key(2048, {"kid": "k"})
    keys = directory / "keys.json"
    keys.write_text(json.dumps({"keys": [issuer.as_dict(private=False)]}))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    for name in ("broker", "user"):
        issued = authority.issue_cert("127.0.0.1", "localhost", common_name=name)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        in_pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # all that Java reads
        chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
        (directory / f"{name}.pem").write_bytes(in_pkcs8 + chain)
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in (ADMIN, "user"))
    settings = {
        "listeners": "SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+).*$/$1/",
        "sasl.enabled.mechanisms": ",".join(LOGINS[1:]),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{JAAS}.plain.PlainLoginModule required username="{ADMIN}" password="{PASSWORD}" {users};'
        ),
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
            f"{JAAS}.oauthbearer.OAuthBearerLoginModule required;"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER["iss"],
        "sasl.oauthbearer.expected.audience": ISSUER["aud"],
        "connections.max.reauth.ms": str(SESSION_MS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:broker",
        "delegation.token.secret.key": "a-secret-of-the-test",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with run_broker(settings) as running:
        secured = Secured(running, directory, issuer)
        _add_users_and_rules(AdminClient(secured.confluent(PLAIN, ADMIN)))
        yield secured


def _add_users_and_rules(admin: AdminClient) -> None:
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        for user in (ADMIN, "user"):
            change = UserScramCredentialUpsertion(
                user, ScramCredentialInfo(mechanism, 4_096), PASSWORD.encode()
            )
            admin.alter_user_scram_credentials([change])[user].result(TIMEOUT_S)
    rules = [
        AclBinding(
            kind,
            PREFIX,
            ResourcePatternType.PREFIXED,
            "User:user",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    ]
    for made in admin.create_acls(rules).values():
        made.result(TIMEOUT_S)
