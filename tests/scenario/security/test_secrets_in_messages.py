"""A broker whose settings are broken says so without the secrets in them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.process import ServerProcess
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.slow
SECRET = "TOPSECRET"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
}
TLS = {"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL"}
BROKEN = {
    "a login without an end": {**SASL, JAAS: f'{PLAIN} username="admin" password="{SECRET}"'},
    "a quote without an end": {**SASL, JAAS: f'{PLAIN} user_admin="{SECRET};'},
    "a login module of another kind": {**SASL, JAAS: f'org.example.Mine required user_admin="{SECRET}";'},
    "a login without a user": {**SASL, JAAS: f'{PLAIN} user_admin="{SECRET}" password="{SECRET}";'},
    "a misspelt key": {"listeners": "PLAINTEXT://127.0.0.1:0", "ssl.keystore.pasword": SECRET},
    "a key store that is none": {
        **TLS,
        "ssl.keystore.location": "/etc/hostname",
        "ssl.keystore.password": SECRET,
    },
    "a private key that is none": {
        **TLS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": f"-----BEGIN PRIVATE KEY----- {SECRET}",
        "ssl.keystore.certificate.chain": "x",
    },
    "a login to ZooKeeper": {"listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.auth": SECRET},
}


@pytest.mark.parametrize("settings", BROKEN.values(), ids=BROKEN)
def test_a_broken_setting_shows_no_secret(settings: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    given = {**settings, "log.dirs": str(tmp_path / "data")}
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()), encoding="utf-8")
    source = str(Path(__file__).parents[3] / "src")
    broker = ServerProcess(
        [sys.executable, "-m", "barnabas", "start", "--config", str(file)],
        is_ready=lambda line: line.startswith("barnabas ready"),
        environment={"PYTHONPATH": source, "PYTHONUNBUFFERED": "1"},
    )
    try:
        eventually(
            lambda: not broker.is_running or "barnabas ready" in broker.output_text(),
            "the broker is ready or has ended",
            timeout_s=PATIENCE_S,
        )
    finally:
        broker.stop()
    said = broker.output_text()
    assert said
    assert SECRET not in said
