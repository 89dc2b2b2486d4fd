"""Kafka's own tools on a secured broker, by a file of properties: rules, users, quotas, tokens, and data."""

from __future__ import annotations

import re

import pytest

from tests.clients.secured.broker import (
    ADMIN,
    PASSWORD,
    PLAIN,
    PREFIX,
    SCRAM_256,
    SCRAM_512,
    TLS,
    Secured,
)
from tests.clients.tools import (
    ACLS,
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    DELEGATION_TOKENS,
    TOPICS,
    tool,
)
from tests.peers.kafka import require_kafka

pytestmark = [pytest.mark.java, pytest.mark.client("Kafka's tools")]


@pytest.fixture(autouse=True, scope="module")
def _kafka() -> None:
    require_kafka()


def administer(secured: Secured, main_class: str, *arguments: str, login: str = SCRAM_512) -> str:
    return tool(
        main_class,
        "--bootstrap-server",
        secured.bootstrap(login),
        "--command-config",
        str(secured.properties(login, ADMIN)),
        *arguments,
    )


@pytest.mark.feature("kafka-acls")
def test_rules(secured: Secured) -> None:
    wanted = ("--producer", "--topic", "wages", "--allow-principal", "User:carol")
    administer(secured, ACLS, "--add", *wanted)
    listed = administer(secured, ACLS, "--list", "--topic", "wages")
    assert re.search(r"principal=User:carol, host=\*, operation=WRITE, permissionType=ALLOW", listed)
    administer(secured, ACLS, "--remove", "--force", *wanted)
    assert "carol" not in administer(secured, ACLS, "--list", "--topic", "wages")


@pytest.mark.feature("kafka-configs")
def test_users_and_quotas(secured: Secured) -> None:
    user = ("--entity-type", "users", "--entity-name", "dora")
    credential = f"SCRAM-SHA-256=[iterations=4096,password={PASSWORD}]"
    administer(secured, CONFIGS, "--alter", *user, "--add-config", credential)
    administer(secured, CONFIGS, "--alter", *user, "--add-config", "producer_byte_rate=4096")
    described = administer(secured, CONFIGS, "--describe", *user)
    assert "SCRAM-SHA-256=iterations=4096" in described
    assert "producer_byte_rate=4096" in described
    assert PASSWORD not in described
    for name in ("SCRAM-SHA-256", "producer_byte_rate"):
        administer(secured, CONFIGS, "--alter", *user, "--delete-config", name)
    assert "4096" not in administer(secured, CONFIGS, "--describe", *user)


@pytest.mark.feature("kafka-delegation-tokens")
def test_tokens(secured: Secured) -> None:
    made = administer(
        secured,
        DELEGATION_TOKENS,
        "--create",
        "--max-life-time-period",
        "-1",
        "--renewer-principal",
        "User:user",
    )
    (code,) = set(re.findall(r"[A-Za-z0-9+/]{80,}={0,2}", made))
    own = ("--describe", "--owner-principal", f"User:{ADMIN}")
    assert "User:user" in administer(secured, DELEGATION_TOKENS, *own)
    administer(secured, DELEGATION_TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", code)
    administer(secured, DELEGATION_TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", code)
    assert "User:user" not in administer(secured, DELEGATION_TOKENS, *own)


@pytest.mark.feature("kafka-console-producer and -consumer, secured")
@pytest.mark.parametrize("login", [TLS, PLAIN, SCRAM_256])
def test_records_go_there_and_back(secured: Secured, login: str) -> None:
    name, file = f"{PREFIX}-console-{login.lower()}", str(secured.properties(login))
    server = ("--bootstrap-server", secured.bootstrap(login))
    tool(TOPICS, *server, "--command-config", file, "--create", "--topic", name)
    tool(CONSOLE_PRODUCER, *server, "--command-config", file, "--topic", name, given="one\ntwo\n")
    read = ("--from-beginning", "--max-messages", "2", "--group", name)
    assert tool(CONSOLE_CONSUMER, *server, "--command-config", file, "--topic", name, *read) == "one\ntwo\n"
