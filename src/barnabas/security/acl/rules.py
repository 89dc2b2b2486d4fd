"""ACL rules, indexed so that a decision reads only the patterns that cover a resource.

A literal pattern is found by its name. For prefixed ones the lookup tries one prefix per existing length.
Under each pattern the rules are indexed by principal, so ten thousand rules on one resource need no scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.core.addressing.addresses import canonical_host, without_zone
from barnabas.security.acl.bindings import AccessRule, AclBinding, AclFilter, ResourcePattern
from barnabas.security.acl.vocabulary import (
    EVERYONE,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    granting,
)

ByPrincipal = Mapping[str, tuple[tuple[str, AccessRule], ...]]
"""Rules with the canonical form of their hosts."""


class Decision(NamedTuple):
    is_allowed: bool
    because: AclBinding | str
    """The rule that decided, or the reason if no rule did."""


NO_RULE = "no rule allows it"
NO_RULE_AT_ALL = "no rule names the resource"


class AclRules:
    """Rules by pattern; `replace` is the only writer."""

    def __init__(self) -> None:
        self._rules: dict[ResourcePattern, frozenset[AccessRule]] = {}
        self._by_principal: dict[ResourcePattern, ByPrincipal] = {}
        self._prefixes: dict[ResourceType, dict[int, int]] = {}
        """Number of prefixes of each length."""
        self._prefix_lengths: dict[ResourceType, tuple[int, ...]] = {}

    def of(self, pattern: ResourcePattern) -> frozenset[AccessRule]:
        return self._rules.get(pattern, frozenset())

    def patterns(self) -> list[ResourcePattern]:
        return list(self._rules)

    def replace(self, pattern: ResourcePattern, rules: frozenset[AccessRule]) -> bool:
        """Replace the rules of the pattern; False if they are unchanged."""
        before = self.of(pattern)
        if before == rules:
            return False
        if rules:
            self._rules[pattern] = rules
            self._by_principal[pattern] = _by_principal(rules)
        else:
            del self._rules[pattern], self._by_principal[pattern]
        if pattern.pattern_type is PatternType.PREFIXED and not (before and rules):
            self._count_prefix(pattern, 1 if rules else -1)
        return True

    def _count_prefix(self, pattern: ResourcePattern, change: int) -> None:
        counts = self._prefixes.setdefault(pattern.resource_type, {})
        length = len(pattern.name)
        counts[length] = counts.get(length, 0) + change
        if not counts[length]:
            del counts[length]
        self._prefix_lengths[pattern.resource_type] = tuple(sorted(counts))

    def find(self, wanted: AclFilter) -> Iterator[AclBinding]:
        for pattern, rules in self._rules.items():
            if wanted.finds_pattern(pattern):
                for rule in sorted(rules):
                    if wanted.finds_rule(rule):
                        yield AclBinding(pattern, rule)

    def decide(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        is_open_without_rules: bool,
    ) -> Decision:
        """A matching DENY wins, then an ALLOW, then the default. Only an ALLOW implies other operations."""
        allowed: Decision | None = None
        is_named = False
        grants = granting(operation)
        for pattern in self._covering(resource_type, name):
            is_named = True
            for rule in self._rules_for(pattern, principal, host):
                if rule.permission is Permission.DENY:
                    if rule.operation in (operation, Operation.ALL):
                        return Decision(False, AclBinding(pattern, rule))
                elif allowed is None and rule.operation in grants:
                    allowed = Decision(True, AclBinding(pattern, rule))
        if allowed is not None:
            return allowed
        if is_named:
            return Decision(False, NO_RULE)
        return Decision(is_open_without_rules, NO_RULE_AT_ALL)

    def decide_anywhere(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        *,
        is_open_without_rules: bool,
    ) -> Decision:
        """Whether a resource of the type can exist on which the operation is allowed (KIP-679).

        No operation implies another here, as in Apache Kafka.
        """
        denied: set[tuple[PatternType, str]] = set()
        allowed: list[AclBinding] = []
        for pattern in self._rules:
            if pattern.resource_type is not resource_type:
                continue
            for rule in self._rules_for(pattern, principal, host):
                if rule.operation in (operation, Operation.ALL):
                    if rule.permission is Permission.ALLOW:
                        allowed.append(AclBinding(pattern, rule))
                        continue
                    if pattern.pattern_type is PatternType.LITERAL and pattern.name == WILDCARD:
                        return Decision(False, AclBinding(pattern, rule))
                    denied.add((pattern.pattern_type, pattern.name))
        for binding in allowed:
            pattern = binding.pattern
            is_all = pattern.pattern_type is PatternType.LITERAL and pattern.name == WILDCARD
            if is_all or not _is_denied(pattern, denied):
                return Decision(True, binding)
        is_open = is_open_without_rules and ResourcePattern(resource_type, WILDCARD) not in self._rules
        return Decision(is_open, NO_RULE)

    def _covering(self, resource_type: ResourceType, name: str) -> Iterator[ResourcePattern]:
        known = self._rules
        literal = ResourcePattern(resource_type, name)
        if literal in known:
            yield literal
        if name != WILDCARD:
            everything = ResourcePattern(resource_type, WILDCARD)
            if everything in known:
                yield everything
        for length in self._prefix_lengths.get(resource_type, ()):
            if length > len(name):
                break
            prefixed = ResourcePattern(resource_type, name[:length], PatternType.PREFIXED)
            if prefixed in known:
                yield prefixed

    def _rules_for(self, pattern: ResourcePattern, principal: str, host: str) -> Iterator[AccessRule]:
        """`host` is canonical. A rule for an address without a zone covers that address on every link."""
        rules = self._by_principal[pattern]
        covered = (host, WILDCARD, without_zone(host))
        for who in (principal, EVERYONE):
            for rule_host, rule in rules.get(who, ()):
                if rule_host in covered:
                    yield rule


def _by_principal(rules: Iterable[AccessRule]) -> ByPrincipal:
    found: dict[str, list[tuple[str, AccessRule]]] = {}
    for rule in sorted(rules):
        found.setdefault(rule.principal, []).append((canonical_host(rule.host), rule))
    return {principal: tuple(theirs) for principal, theirs in found.items()}


def _is_denied(allowed: ResourcePattern, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether the denied patterns cover every resource under `allowed`."""
    name = allowed.name
    if allowed.pattern_type is PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
