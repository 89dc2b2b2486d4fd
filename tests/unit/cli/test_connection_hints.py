"""Hints for connection failures, by the reason and the security protocol of the client."""

from __future__ import annotations

import pytest

from barnabas.cli.support.connection_hints import HANGS, IS_ONE_RUNNING, advice, login_is_missing
from barnabas.client.security.settings import SecurityProtocol

PLAINTEXT, SSL = SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL
SASL_PLAINTEXT, SASL_SSL = SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL


@pytest.mark.parametrize("protocol", SecurityProtocol)
@pytest.mark.parametrize("reason", ["connection refused", "unknown host", "timed out"])
def test_without_a_broker_the_hint_is_to_start_one(reason: str, protocol: SecurityProtocol) -> None:
    assert advice(f"cannot reach a:1 ({reason})", protocol) == IS_ONE_RUNNING


@pytest.mark.parametrize("protocol", SecurityProtocol)
def test_a_listener_that_does_not_answer_is_no_missing_broker(protocol: SecurityProtocol) -> None:
    assert advice("a:1 did not answer ApiVersions within 30000 ms", protocol) == HANGS


@pytest.mark.parametrize(
    ("reason", "protocol", "setting"),
    [
        ("connection reset", PLAINTEXT, "set security.protocol=SSL and"),
        ("it closed the connection", SASL_PLAINTEXT, "set security.protocol=SASL_SSL and"),
        ("it does not speak TLS", SSL, "security.protocol is PLAINTEXT"),
        ("connection reset", SASL_SSL, "security.protocol is SASL_PLAINTEXT"),
        ("a:1 has a listener without SASL here", SASL_SSL, "security.protocol is SSL there, not SASL_SSL"),
        ("a:1 has a listener without SASL here", SASL_PLAINTEXT, "is PLAINTEXT there, not SASL_PLAINTEXT"),
    ],
)
def test_a_connection_that_is_cut_off_names_the_other_protocol(
    reason: str, protocol: SecurityProtocol, setting: str
) -> None:
    assert setting in advice(reason, protocol)


def test_a_missing_login_keeps_the_transport() -> None:
    assert "security.protocol=SASL_PLAINTEXT," in login_is_missing(PLAINTEXT)
    assert "security.protocol=SASL_SSL," in login_is_missing(SSL)
