"""A broker inside the test that is reached by SASL inside TLS only, with rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
)

from barnabas.testing.broker import run_broker

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ADMIN = "admin"
USERS = {ADMIN: "admin-secret", "alice": "alices-own-secret", "bob": "bobs-own-secret"}


@dataclass(frozen=True)
class SecuredBroker:
    bootstrap: str
    ca: Path

    def settings(self, user: str, password: str | None = None) -> dict[str, str]:
        """Kafka's client settings; `password` may be a reference."""
        shown = USERS[user] if password is None else password
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.ca),
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{MODULE} username="{user}" password="{shown}";',
        }

    def confluent(self, user: str = ADMIN) -> dict[str, Any]:
        """librdkafka's properties."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": USERS[user],
            "log_level": 0,
        }

    def allow(self, user: str, kind: ResourceType, name: str, operation: AclOperation) -> None:
        rule = AclBinding(
            kind, name, ResourcePatternType.PREFIXED, f"User:{user}", "*", operation, AclPermissionType.ALLOW
        )
        admin = AdminClient(self.confluent())
        for done in admin.create_acls([rule]).values():
            done.result(60)


@contextmanager
def secured_broker(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[SecuredBroker]:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", common_name="broker")
    issued.private_key_and_cert_chain_pem.write_to_path(str(directory / "broker.pem"))
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    own = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{MODULE} username="{ADMIN}" password="{USERS[ADMIN]}" {users};'
        ),
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.location": str(directory / "ca.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
        "auto.create.topics.enable": "false",
    }
    with run_broker({**own, **(settings or {})}) as broker:
        yield SecuredBroker(broker.bootstrap, directory / "ca.pem")
