"""`barnabas acl` against a broker with an authorizer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from barnabas.testing.broker import run_broker
from tests.scenario.cli.command import Barnabas

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def barnabas() -> Iterator[Barnabas]:
    with run_broker(SETTINGS) as broker:
        yield Barnabas(broker.bootstrap)


def rules(barnabas: Barnabas, *arguments: str) -> set[tuple[str, ...]]:
    found = json.loads(barnabas("acl", "list", "--json", *arguments))
    return {tuple(row.values()) for row in found}


def test_rules_are_added_listed_and_removed(barnabas: Barnabas) -> None:
    barnabas("acl", "add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "orders")
    barnabas("acl", "add", "--deny-principal", "User:*", "--deny-host", "192.0.2.1", "--topic", "*")
    barnabas(
        "acl", "add", "--allow-principal", "User:b", "--operation", "Describe", "--topic", "ord",
        "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    read = ("Topic", "orders", "literal", "User:a", "*", "Read", "Allow")
    denied = ("Topic", "*", "literal", "User:*", "192.0.2.1", "All", "Deny")
    described = ("Topic", "ord", "prefixed", "User:b", "*", "Describe", "Allow")
    assert rules(barnabas) == {read, denied, described}
    assert rules(barnabas, "--topic", "orders") == {read}
    assert rules(barnabas, "--topic", "order", "--resource-pattern-type", "match") == {denied, described}
    assert rules(barnabas, "--principal", "User:b") == {described}
    said = barnabas(
        "acl", "remove", "--allow-principal", "User:a", "--operation", "Read", "--topic", "orders"
    )
    assert said == "removed: ALLOW READ to User:a from * on TOPIC:LITERAL:orders\n"
    said = barnabas(
        "acl", "remove", "--force", "--topic", "*", "--topic", "ord", "--resource-pattern-type", "any"
    )
    assert said.count("removed:") == 2
    assert rules(barnabas) == set()


def test_short_cuts_give_what_clients_need(barnabas: Barnabas) -> None:
    barnabas("acl", "add", "--producer", "--idempotent", "--allow-principal", "User:p", "--topic", "t")
    assert rules(barnabas) == {
        ("Topic", "t", "literal", "User:p", "*", operation, "Allow")
        for operation in ("Write", "Describe", "Create")
    } | {("Cluster", "kafka-cluster", "literal", "User:p", "*", "IdempotentWrite", "Allow")}
    barnabas("acl", "add", "--consumer", "--allow-principal", "User:c", "--topic", "t", "--group", "g")
    assert rules(barnabas, "--principal", "User:c") == {
        ("Topic", "t", "literal", "User:c", "*", "Read", "Allow"),
        ("Topic", "t", "literal", "User:c", "*", "Describe", "Allow"),
        ("Group", "g", "literal", "User:c", "*", "Read", "Allow"),
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("--topic", "t"),
        ("--allow-principal", "User:a"),
        ("--allow-principal", "alice", "--topic", "t"),
        ("--allow-principal", "User:a", "--topic", "t", "--operation", "Fly"),
        ("--allow-principal", "User:a", "--group", "g", "--operation", "Write"),
        ("--allow-principal", "User:a", "--consumer", "--topic", "t"),
        ("--allow-principal", "User:a", "--producer", "--topic", "t", "--operation", "Read"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(barnabas: Barnabas, arguments: tuple[str, ...]) -> None:
    with barnabas.start("acl", "add", *arguments) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert b"Error: " in said
