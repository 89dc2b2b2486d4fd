"""The authorizer remembers decisions, forgets them with any change, and tells the audit log."""

from __future__ import annotations

import json
import logging

import pytest
from tests.support.manual_time import ManualClock

from barnabas.config.dynamic.loggers import AUDIT
from barnabas.security.acl import authorizer as authorizer_module
from barnabas.security.acl.audit import Audit
from barnabas.security.acl.authorizer import (
    AclAuthorizer,
    AllowAll,
    authorized_operations,
    parse_super_users,
)
from barnabas.security.acl.bindings import AccessRule, ResourcePattern
from barnabas.security.acl.vocabulary import OPERATIONS, Operation, Permission, ResourceType
from barnabas.security.identity.principal import ANONYMOUS, KafkaPrincipal

ALICE = KafkaPrincipal.user("alice")
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
HOST = "192.0.2.1"


def rule(operation: Operation, permission: Permission = Permission.ALLOW) -> AccessRule:
    return AccessRule("User:alice", "*", operation, permission)


@pytest.fixture
def authorizer() -> AclAuthorizer:
    return AclAuthorizer(
        Audit(ManualClock()), parse_super_users("User:root; User:CN=b,O=c:d"), is_open_without_rules=False
    )


def may(authorizer: AclAuthorizer, operation: Operation, principal: KafkaPrincipal = ALICE) -> bool:
    return authorizer.allows(principal, HOST, operation, ResourceType.TOPIC, "orders")


def test_a_change_is_heeded_at_once(authorizer: AclAuthorizer) -> None:
    assert not may(authorizer, Operation.READ)
    authorizer.replace(ORDERS, frozenset({rule(Operation.READ)}))
    assert may(authorizer, Operation.READ)
    authorizer.replace(ORDERS, frozenset({rule(Operation.READ), rule(Operation.ALL, Permission.DENY)}))
    assert not may(authorizer, Operation.READ)
    authorizer.replace(ORDERS, frozenset())
    assert not may(authorizer, Operation.READ)
    assert authorizer.patterns() == []


def test_super_users_may_do_everything(authorizer: AclAuthorizer) -> None:
    everyone = AccessRule("User:*", "*", Operation.ALL, Permission.DENY)
    authorizer.replace(ORDERS, frozenset({everyone}))
    for name in ("root", "CN=b,O=c:d"):
        principal = KafkaPrincipal.user(name)
        assert may(authorizer, Operation.WRITE, principal)
        assert authorizer.allows_anywhere(principal, HOST, Operation.WRITE, ResourceType.TOPIC)
    assert not may(authorizer, Operation.WRITE)


def test_what_is_remembered_has_a_bound(authorizer: AclAuthorizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "DECISIONS_REMEMBERED_MAX", 10)
    for number in range(100):
        authorizer.allows(ALICE, HOST, Operation.READ, ResourceType.TOPIC, f"t{number}")
        assert len(authorizer._decisions) <= 10


def test_long_names_are_decided_upon_and_not_remembered(
    authorizer: AclAuthorizer, caplog: pytest.LogCaptureFixture
) -> None:
    """Strangers choose them: 65,536 of the longest would be two gigabytes, and their lines fill a disk."""
    caplog.set_level(logging.INFO, AUDIT)
    for number in range(3):
        name = f"{number}" + "n" * 32_000
        assert not authorizer.allows(ALICE, HOST, Operation.READ, ResourceType.GROUP, name)
        assert not authorizer.allows(KafkaPrincipal.user(name), HOST, Operation.READ, ResourceType.GROUP, "g")
    assert authorizer._decisions == {}
    assert len(caplog.records) == 6
    for line in map(json.loads, caplog.messages):
        assert len(line["resource"]) + len(line["principal"]) < 600
        assert "… (3200" in line["resource"] + line["principal"]
    everything = ResourcePattern(ResourceType.GROUP, "*")
    authorizer.replace(everything, frozenset({rule(Operation.READ)}))
    assert authorizer.allows(ALICE, HOST, Operation.READ, ResourceType.GROUP, "n" * 32_000)


def test_authorized_operations_are_bits(authorizer: AclAuthorizer) -> None:
    authorizer.replace(ORDERS, frozenset({rule(Operation.READ)}))
    bits = authorized_operations(authorizer, ALICE, HOST, ResourceType.TOPIC, "orders")
    assert bits == 1 << Operation.READ | 1 << Operation.DESCRIBE
    everything = authorized_operations(AllowAll(), ANONYMOUS, HOST, ResourceType.TOPIC, "orders")
    assert everything == sum(1 << each for each in OPERATIONS[ResourceType.TOPIC])


def test_denials_are_told_and_permissions_only_when_asked(
    authorizer: AclAuthorizer, caplog: pytest.LogCaptureFixture
) -> None:
    authorizer.replace(ORDERS, frozenset({rule(Operation.READ)}))
    with caplog.at_level(logging.INFO, AUDIT):
        may(authorizer, Operation.READ)
        may(authorizer, Operation.WRITE)
        may(authorizer, Operation.WRITE)
        authorizer.allows(ALICE, HOST, Operation.WRITE, ResourceType.TOPIC, "orders", audited=False)
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert len(lines) == 2
    assert lines[0] == {
        "decision": "denied",
        "principal": "User:alice",
        "host": HOST,
        "operation": "WRITE",
        "resource_type": "TOPIC",
        "resource": "orders",
        "rule": "no rule allows it",
    }
    caplog.clear()
    with caplog.at_level(logging.DEBUG, AUDIT):
        may(authorizer, Operation.READ)
    (allowed,) = [json.loads(record.getMessage()) for record in caplog.records]
    assert allowed["decision"] == "allowed"
    assert allowed["rule"] == "ALLOW READ to User:alice from * on TOPIC:LITERAL:orders"


def test_a_name_cannot_forge_a_line(authorizer: AclAuthorizer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, AUDIT):
        authorizer.allows(ALICE, HOST, Operation.READ, ResourceType.GROUP, 'x"\n{"decision": "allowed"}')
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert json.loads(record.getMessage())["decision"] == "denied"


def test_lines_are_few_and_the_rest_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    authorizer = AclAuthorizer(Audit(clock, lines_per_second=3), (), is_open_without_rules=False)
    with caplog.at_level(logging.INFO, AUDIT):
        for _ in range(10):
            may(authorizer, Operation.WRITE)
        clock.advance(ms=1_001)
        may(authorizer, Operation.WRITE)
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [line.get("left_out") for line in lines] == [None, None, None, 7]
