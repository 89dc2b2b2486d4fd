"""Rules decide as Kafka's do: also beside a model that goes through all of them each time."""

from __future__ import annotations

import random

import pytest

from barnabas.core.errors import InvalidRequest
from barnabas.security.acl.bindings import AccessRule, AclBinding, AclFilter, ResourcePattern
from barnabas.security.acl.rules import AclRules
from barnabas.security.acl.vocabulary import (
    EVERYONE,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    from_code,
    from_text,
)

ALICE, BOB = "User:alice", "User:bob"
HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"


def rules_of(*bindings: AclBinding) -> AclRules:
    rules = AclRules()
    for pattern, rule in bindings:
        rules.replace(pattern, rules.of(pattern) | {rule})
    return rules


def allow(
    name: str,
    operation: Operation = Operation.READ,
    principal: str = ALICE,
    *,
    host: str = "*",
    prefixed: bool = False,
    permission: Permission = Permission.ALLOW,
) -> AclBinding:
    kind = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AclBinding(
        ResourcePattern(ResourceType.TOPIC, name, kind), AccessRule(principal, host, operation, permission)
    )


def deny(
    name: str, operation: Operation = Operation.READ, principal: str = ALICE, *, prefixed: bool = False
) -> AclBinding:
    return allow(name, operation, principal, prefixed=prefixed, permission=Permission.DENY)


def allows(
    rules: AclRules,
    name: str = "orders",
    operation: Operation = Operation.READ,
    principal: str = ALICE,
    *,
    host: str = HERE,
    is_open: bool = False,
) -> bool:
    decision = rules.decide(
        principal, host, operation, ResourceType.TOPIC, name, is_open_without_rules=is_open
    )
    return decision.is_allowed


@pytest.mark.parametrize(
    "binding",
    [
        allow("orders"),
        allow("*"),
        allow("ord", prefixed=True),
        allow("orders", prefixed=True),
        allow("orders", principal=EVERYONE),
        allow("orders", Operation.ALL),
        allow("orders", host=HERE),
    ],
    ids=str,
)
def test_a_rule_that_matches_allows(binding: AclBinding) -> None:
    assert allows(rules_of(binding))


@pytest.mark.parametrize(
    "binding",
    [
        allow("order"),
        allow("orders2"),
        allow("*", prefixed=True),
        allow("orders2", prefixed=True),
        allow("orders", principal=BOB),
        allow("orders", Operation.WRITE),
        allow("orders", host=ELSEWHERE),
    ],
    ids=str,
)
def test_a_rule_that_does_not_match_allows_nothing(binding: AclBinding) -> None:
    assert not allows(rules_of(binding))


@pytest.mark.parametrize(
    "denial",
    [
        deny("orders"),
        deny("*"),
        deny("o", prefixed=True),
        deny("orders", principal=EVERYONE),
        deny("orders", Operation.ALL),
    ],
    ids=str,
)
def test_a_denial_wins(denial: AclBinding) -> None:
    assert not allows(rules_of(allow("orders"), allow("*", Operation.ALL), denial))


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_a_right_to_use_a_topic_is_a_right_to_describe_it(operation: Operation) -> None:
    assert allows(rules_of(allow("orders", operation)), operation=Operation.DESCRIBE)
    assert not allows(rules_of(allow("orders", Operation.DESCRIBE)), operation=operation)


def test_a_right_to_alter_configs_is_a_right_to_describe_them() -> None:
    rules = rules_of(allow("orders", Operation.ALTER_CONFIGS))
    assert allows(rules, operation=Operation.DESCRIBE_CONFIGS)
    assert not allows(rules, operation=Operation.DESCRIBE)


def test_a_denial_implies_nothing() -> None:
    rules = rules_of(allow("orders", Operation.DESCRIBE), deny("orders", Operation.READ))
    assert allows(rules, operation=Operation.DESCRIBE)


@pytest.mark.parametrize(
    "binding",
    [allow("orders", principal=BOB), allow("*", principal=BOB), allow("o", principal=BOB, prefixed=True)],
)
def test_a_resource_is_open_only_while_no_pattern_covers_it(binding: AclBinding) -> None:
    assert allows(AclRules(), is_open=True)
    assert allows(rules_of(allow("payments")), is_open=True)
    assert not allows(rules_of(binding), is_open=True)


def test_rules_that_are_taken_back_are_gone() -> None:
    rules = rules_of(allow("ord", prefixed=True), allow("o", prefixed=True, principal=BOB))
    pattern = ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED)
    assert rules.replace(pattern, frozenset())
    assert not rules.replace(pattern, frozenset())
    assert not allows(rules)
    assert allows(rules, principal=BOB)


def test_filters_find_by_every_field() -> None:
    bindings = [
        allow("orders"),
        allow("ord", prefixed=True),
        allow("*", Operation.WRITE, BOB),
        deny("orders"),
    ]
    rules = rules_of(*bindings)
    assert set(rules.find(AclFilter())) == set(bindings)
    match = AclFilter(name="orders", pattern_type=PatternType.MATCH)
    assert set(rules.find(match)) == set(bindings)
    assert set(rules.find(match._replace(name="ord"))) == {bindings[1], bindings[2]}
    assert set(rules.find(AclFilter(name="orders"))) == {bindings[0], bindings[3]}
    assert set(rules.find(AclFilter(permission=Permission.DENY))) == {bindings[3]}
    assert set(rules.find(AclFilter(principal=BOB))) == {bindings[2]}
    assert not list(rules.find(AclFilter(resource_type=ResourceType.GROUP)))


def anywhere(rules: AclRules, *, is_open: bool = False) -> bool:
    return rules.decide_anywhere(
        ALICE, HERE, Operation.WRITE, ResourceType.TOPIC, is_open_without_rules=is_open
    ).is_allowed


def test_a_right_to_write_somewhere_is_found() -> None:
    write = Operation.WRITE
    assert not anywhere(AclRules())
    assert not anywhere(rules_of(allow("a", write, BOB)))
    assert anywhere(rules_of(allow("a", write)))
    assert anywhere(rules_of(allow("a", write, prefixed=True), deny("ab", write, prefixed=True)))
    assert not anywhere(rules_of(allow("ab", write), deny("a", write, prefixed=True)))
    assert not anywhere(rules_of(allow("a", write), deny("a", write)))
    assert not anywhere(rules_of(allow("a", write), deny("*", write)))
    assert anywhere(rules_of(allow("*", write), deny("a", write)))
    assert anywhere(rules_of(deny("a", write)), is_open=True)
    assert not anywhere(rules_of(allow("*", write, BOB)), is_open=True)


def naively_allowed(
    bindings: list[AclBinding], principal: str, host: str, operation: Operation, name: str, *, is_open: bool
) -> bool:
    covering = [each for each in bindings if each.pattern.covers(name)]
    mine = [
        rule for _, rule in covering if rule.principal in (principal, EVERYONE) and rule.host in (host, "*")
    ]
    if any(
        rule.permission is Permission.DENY and rule.operation in (operation, Operation.ALL) for rule in mine
    ):
        return False
    also = {
        Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
        Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
    }.get(operation, set())
    if any(
        rule.permission is Permission.ALLOW and rule.operation in {operation, Operation.ALL, *also}
        for rule in mine
    ):
        return True
    return is_open and not covering


@pytest.mark.parametrize(
    ("written", "peer"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8:0:0:0:0:0:0A", "2001:db8::a"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("0:0:0:0:0:FFFF:C000:0201", "192.0.2.1"),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%eth0"),
        ("fe80::1", "fe80::1%eth0"),
    ],
)
def test_a_host_is_meant_by_every_spelling_of_its_address(written: str, peer: str) -> None:
    """Apache Kafka writes addresses as Java does, in full."""
    open_to_all = allow("orders")
    denied = allow("orders", host=written, permission=Permission.DENY)
    rules = rules_of(open_to_all, denied)
    assert not allows(rules, host=peer)
    assert allows(rules, host="192.0.2.77")
    assert not rules.decide_anywhere(
        ALICE, peer, Operation.READ, ResourceType.TOPIC, is_open_without_rules=False
    ).is_allowed
    assert denied in rules.find(AclFilter(host=written)), "it is found as it was written"
    assert allows(rules_of(allow("orders", host=written)), host=peer)


def test_a_rule_for_an_address_on_one_link_is_not_for_another() -> None:
    rules = rules_of(allow("orders", host="fe80::1%eth0"))
    assert allows(rules, host="fe80::1%eth0")
    assert not allows(rules, host="fe80::1%eth1")


@pytest.mark.parametrize("seed", range(40))
def test_rules_decide_as_the_model_does(seed: int) -> None:
    chance = random.Random(seed)
    names = ["a", "ab", "abc", "b", "ba", "*"]
    operations = [each for each in Operation if each.is_definite]
    bindings: list[AclBinding] = []
    rules = AclRules()
    for _ in range(60):
        if bindings and chance.random() < 0.3:
            gone = bindings.pop(chance.randrange(len(bindings)))
            rules.replace(gone.pattern, rules.of(gone.pattern) - {gone.rule})
        else:
            new = AclBinding(
                ResourcePattern(
                    ResourceType.TOPIC,
                    chance.choice(names),
                    chance.choice([PatternType.LITERAL, PatternType.PREFIXED]),
                ),
                AccessRule(
                    chance.choice([ALICE, BOB, EVERYONE]),
                    chance.choice([HERE, ELSEWHERE, "*"]),
                    chance.choice(operations),
                    chance.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
                ),
            )
            if new not in bindings:
                bindings.append(new)
                rules.replace(new.pattern, rules.of(new.pattern) | {new.rule})
        principal, host, operation = (
            chance.choice([ALICE, BOB]),
            chance.choice([HERE, ELSEWHERE]),
            chance.choice(operations),
        )
        name, is_open = chance.choice(names[:-1]), chance.random() < 0.5
        expected = naively_allowed(bindings, principal, host, operation, name, is_open=is_open)
        assert allows(rules, name, operation, principal, host=host, is_open=is_open) == expected


@pytest.mark.parametrize(
    "binding",
    [
        allow(""),
        allow("a/b"),
        allow(".."),
        allow("a", principal="alice"),
        allow("a", host=""),
        allow("a", Operation.ANY),
        AclBinding(
            ResourcePattern(ResourceType.CLUSTER, "other"),
            AccessRule(ALICE, "*", Operation.ALTER, Permission.ALLOW),
        ),
        AclBinding(
            ResourcePattern(ResourceType.TOPIC, "a", PatternType.MATCH),
            AccessRule(ALICE, "*", Operation.READ, Permission.ALLOW),
        ),
    ],
    ids=str,
)
def test_a_rule_that_makes_no_sense_is_refused(binding: AclBinding) -> None:
    with pytest.raises(InvalidRequest):
        binding.check()


def test_words_are_read_in_either_spelling() -> None:
    assert from_text(Operation, "DescribeConfigs") is Operation.DESCRIBE_CONFIGS
    assert from_text(ResourceType, "transactional-id") is ResourceType.TRANSACTIONAL_ID
    assert Operation.CLUSTER_ACTION.shown_as == "ClusterAction"
    assert from_code(Operation, 99) is Operation.UNKNOWN
    with pytest.raises(InvalidRequest, match="is none of"):
        from_text(Operation, "fly")
