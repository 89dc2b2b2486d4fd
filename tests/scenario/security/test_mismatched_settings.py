"""A client whose settings do not match the listener reports the probable cause, and soon."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner

from barnabas.cli.main import cli
from barnabas.testing.broker import RunningBroker, run_broker

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="alice" password="wonder" user_alice="wonder";'
)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

TLS = "a listener with TLS does that; if it is one, set security.protocol={}"
NO_TLS = "a listener without TLS does that; if it is one, security.protocol is {}"
LOGIN = "a listener that asks for a login does that; if it is one, set security.protocol={},"
NO_LOGIN = "has a listener without SASL here: security.protocol is {} there"

HEARD = {
    ("PLAINTEXT", "SSL"): TLS.format("SSL"),
    ("PLAINTEXT", "SASL_PLAINTEXT"): LOGIN.format("SASL_PLAINTEXT"),
    ("PLAINTEXT", "SASL_SSL"): TLS.format("SSL"),
    ("SSL", "PLAINTEXT"): NO_TLS.format("PLAINTEXT"),
    ("SSL", "SASL_PLAINTEXT"): NO_TLS.format("PLAINTEXT"),
    ("SSL", "SASL_SSL"): LOGIN.format("SASL_SSL"),
    ("SASL_PLAINTEXT", "PLAINTEXT"): NO_LOGIN.format("PLAINTEXT"),
    ("SASL_PLAINTEXT", "SSL"): TLS.format("SASL_SSL"),
    ("SASL_PLAINTEXT", "SASL_SSL"): TLS.format("SASL_SSL"),
    ("SASL_SSL", "PLAINTEXT"): NO_TLS.format("SASL_PLAINTEXT"),
    ("SASL_SSL", "SSL"): NO_LOGIN.format("SSL"),
    ("SASL_SSL", "SASL_PLAINTEXT"): NO_TLS.format("SASL_PLAINTEXT"),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(path / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(path / "broker.pem"))
    return path


@pytest.fixture(scope="module")
def brokers(directory: Path) -> Iterator[dict[str, RunningBroker]]:
    settings = {
        "ssl.keystore.location": str(directory / "broker.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.jaas.config": JAAS,
    }
    with ExitStack() as stack:
        yield {
            each: stack.enter_context(run_broker({**settings, "listeners": f"{each}://127.0.0.1:0"}))
            for each in PROTOCOLS
        }


@pytest.mark.parametrize("listener", PROTOCOLS)
@pytest.mark.parametrize("client", PROTOCOLS)
def test_what_is_probably_wrong_is_said(
    client: str, listener: str, brokers: dict[str, RunningBroker], directory: Path
) -> None:
    file = directory / f"{client}.properties"
    file.write_text(
        f"security.protocol={client}\nssl.truststore.location={directory / 'ca.pem'}\n"
        f"sasl.mechanism=PLAIN\nsasl.jaas.config={JAAS}\n"
    )
    broker = brokers[listener]
    before = failures(broker)
    command = ["topic", "list", "--bootstrap", broker.bootstrap, "--command-config", str(file)]
    result = CliRunner().invoke(cli, command)
    heard = HEARD.get((client, listener))
    assert result.exit_code == (0 if heard is None else 3), result.output
    assert heard is None or heard in result.output
    assert "is a broker running?" not in result.output
    is_cut_off = heard is not None and heard.startswith(LOGIN[:30])
    assert failures(broker) - before == (2 if is_cut_off else 0), "it is not tried for half a minute"


@pytest.mark.parametrize("listener", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_pipeline_without_settings_hears_the_same(
    listener: str, brokers: dict[str, RunningBroker], tmp_path: Path
) -> None:
    spec = tmp_path / "copy.yaml"
    spec.write_text(
        "{name: copy, source: {type: topic, topics: orders, schema: a INT}, sink: {type: console}}"
    )
    command = [
        "pipeline",
        "run",
        str(spec),
        "--state",
        str(tmp_path),
        "--bootstrap",
        brokers[listener].bootstrap,
    ]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 3, result.output
    assert HEARD["PLAINTEXT", listener] in result.output
    assert "is a broker running?" not in result.output


def failures(broker: RunningBroker) -> int:
    """Requests that came before a login."""
    pattern = r"^kafka_failed_authentication_total\{.*illegal_state.*\} (\d+)"
    return sum(map(int, re.findall(pattern, broker.metrics_text(), re.MULTILINE)))
