"""A cluster of real processes with SASL inside TLS only, and access rules.

Brokers and users log in by PLAIN. Each broker has its own certificate, which can be renewed while it runs.
`CLIENT` has all rights by rules; `ADMIN` and the brokers have them as super users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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

from barnabas.client.security.settings import PLAINTEXT, Secured, SecuritySettings

PROTOCOL = "SASL_SSL"
BROKER, ADMIN, CLIENT = "broker", "admin", "client"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
RULES_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Reach:
    """Settings of clients of a cluster: librdkafka's properties, and those of our own clients."""

    properties: Mapping[str, Any]
    own_properties: Mapping[str, Any]
    security: Secured = PLAINTEXT

    @classmethod
    def in_the_clear(cls, bootstrap: str) -> Reach:
        properties = {"bootstrap.servers": bootstrap}
        return cls(properties, properties)


@dataclass
class Security:
    """`hosts` are the addresses by which brokers are reached."""

    directory: Path
    hosts: Sequence[str]
    authority: trustme.CA = field(default_factory=trustme.CA)

    @property
    def _ca(self) -> Path:
        return self.directory / "ca.pem"

    def settings(self, broker_id: int) -> dict[str, object]:
        self._ca.parent.mkdir(parents=True, exist_ok=True)
        self.authority.cert_pem.write_to_path(str(self._ca))
        self.issue(broker_id)
        users = " ".join(f'user_{name}="{_password(name)}"' for name in (BROKER, ADMIN, CLIENT))
        return {
            "security.inter.broker.protocol": PROTOCOL,
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{_login(BROKER)[:-1]} {users};",
            "ssl.keystore.location": self._store(broker_id),
            "ssl.truststore.location": self._ca,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{BROKER};User:{ADMIN}",
        }

    def issue(self, broker_id: int) -> int:
        """Replace the certificate of a broker; returns its serial number."""
        issued = self.authority.issue_cert(*self.hosts, common_name=f"broker-{broker_id}")
        fresh = self._store(broker_id).with_suffix(".new")
        issued.private_key_and_cert_chain_pem.write_to_path(str(fresh))
        fresh.replace(self._store(broker_id))
        return serial_number(issued.cert_chain_pems[0].bytes())

    def reach(self, bootstrap: str, user: str = CLIENT) -> Reach:
        tls = {"security.protocol": PROTOCOL, "sasl.mechanism": "PLAIN", "ssl.ca.location": str(self._ca)}
        own = {**tls, "sasl.jaas.config": _login(user)}
        secured = SecuritySettings.parse(own).secured()
        login = {"sasl.username": user, "sasl.password": _password(user)}
        servers = {"bootstrap.servers": bootstrap}
        return Reach({**servers, **tls, **login}, {**servers, **own}, secured)

    def let_the_client_do_everything(self, bootstrap: str) -> None:
        admin = AdminClient(dict(self.reach(bootstrap, ADMIN).properties))
        kinds = {
            ResourceType.TOPIC: "*",
            ResourceType.GROUP: "*",
            ResourceType.TRANSACTIONAL_ID: "*",
            ResourceType.BROKER: "kafka-cluster",
        }
        rules = [
            AclBinding(
                kind,
                name,
                ResourcePatternType.LITERAL,
                f"User:{CLIENT}",
                "*",
                AclOperation.ALL,
                AclPermissionType.ALLOW,
            )
            for kind, name in kinds.items()
        ]
        for made in admin.create_acls(rules).values():
            made.result(RULES_TIMEOUT_S)

    def _store(self, broker_id: int) -> Path:
        return self.directory / f"broker-{broker_id}.pem"


def serial_number(certificate: bytes) -> int:
    from cryptography.x509 import load_pem_x509_certificate

    return load_pem_x509_certificate(certificate).serial_number


def _password(user: str) -> str:
    return f"{user}-secret"


def _login(user: str) -> str:
    return f'{MODULE} username="{user}" password="{_password(user)}";'
