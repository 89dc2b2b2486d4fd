"""A broker whose one listener asks for SASL, and how clients log in to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnabas.testing.broker import RunningBroker, run_broker

ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": MECHANISMS,
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="{ADMIN}" password="{ADMIN_PASSWORD}" user_{ADMIN}="{ADMIN_PASSWORD}" user_bob="builder";'
    ),
}


@contextmanager
def sasl_broker(
    settings: Mapping[str, str] | None = None, *, data_dir: Path | None = None
) -> Iterator[RunningBroker]:
    with run_broker({**SETTINGS, **(settings or {})}, data_dir=data_dir) as broker:
        yield broker


def confluent(
    broker: RunningBroker, mechanism: str = "PLAIN", user: str = ADMIN, password: str = ADMIN_PASSWORD
) -> dict[str, Any]:
    """librdkafka's properties."""
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def python(
    broker: RunningBroker, mechanism: str = "PLAIN", user: str = ADMIN, password: str = ADMIN_PASSWORD
) -> dict[str, Any]:
    """The keyword arguments of kafka-python and aiokafka."""
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }
