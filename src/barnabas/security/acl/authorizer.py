"""Authorizer: may this principal, from this host, do this operation on that resource?

Decisions are cached under all their inputs, so a repeated request costs one lookup with any number of rules.
A change of the rules clears the cache. Client-chosen names are unbounded, so the cache is also cleared at a
limit, and decisions on too long names are not cached.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from barnabas.core.limits import NAME_CHARS_REMEMBERED_MAX
from barnabas.security.acl.audit import Audit
from barnabas.security.acl.bindings import AccessRule, AclBinding, AclFilter, ResourcePattern
from barnabas.security.acl.rules import AclRules, Decision
from barnabas.security.acl.vocabulary import OPERATIONS, Operation, ResourceType
from barnabas.security.identity.principal import KafkaPrincipal

DECISIONS_REMEMBERED_MAX: Final = 65_536

SUPER_USER: Final = Decision(True, "a super user")


class Authorizer(Protocol):
    @property
    def allows_everything(self) -> bool:
        """Whether every operation is allowed, so that handlers need not check elements one by one."""
        ...

    def allows(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        audited: bool = True,
    ) -> bool:
        """`audited` is False for an element that a list leaves out: that denial is not an event."""
        ...

    def allows_anywhere(
        self, principal: KafkaPrincipal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether a resource of the type can exist on which the operation is allowed."""
        ...


class AllowAll:
    """Authorizer of a broker without a configured one: every operation is allowed."""

    allows_everything = True

    def allows(
        self,
        principal: KafkaPrincipal,  # noqa: ARG002
        host: str,  # noqa: ARG002
        operation: Operation,  # noqa: ARG002
        resource_type: ResourceType,  # noqa: ARG002
        name: str,  # noqa: ARG002
        *,
        audited: bool = True,  # noqa: ARG002
    ) -> bool:
        return True

    def allows_anywhere(
        self,
        principal: KafkaPrincipal,  # noqa: ARG002
        host: str,  # noqa: ARG002
        operation: Operation,  # noqa: ARG002
        resource_type: ResourceType,  # noqa: ARG002
    ) -> bool:
        return True


class AclAuthorizer:
    allows_everything = False

    def __init__(
        self,
        audit: Audit,
        super_users: Iterable[KafkaPrincipal],
        *,
        is_open_without_rules: bool,
    ) -> None:
        self._audit = audit
        self._shows = audit.logger.isEnabledFor
        self._super_users = frozenset(super_users)
        self._is_open_without_rules = is_open_without_rules
        self._rules = AclRules()
        self._decisions: dict[object, Decision] = {}

    def allows(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        audited: bool = True,
    ) -> bool:
        key = (principal, host, operation, resource_type, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(principal, host, operation, resource_type, name)
            if len(name) + len(principal.name) <= NAME_CHARS_REMEMBERED_MAX:
                self._remember(key, decision)
        is_allowed = decision.is_allowed
        if audited and (not is_allowed or self._shows(logging.DEBUG)):
            self._audit.note(principal, host, operation, resource_type, name, decision)
        return is_allowed

    def allows_anywhere(
        self, principal: KafkaPrincipal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        key = (principal, host, operation, resource_type)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide_anywhere(*key)
            self._remember(key, decision)
        self._audit.note(principal, host, operation, resource_type, "any", decision)
        return decision.is_allowed

    def of(self, pattern: ResourcePattern) -> frozenset[AccessRule]:
        return self._rules.of(pattern)

    def find(self, wanted: AclFilter) -> Iterator[AclBinding]:
        return self._rules.find(wanted)

    def patterns(self) -> list[ResourcePattern]:
        """All patterns with rules."""
        return self._rules.patterns()

    def replace(self, pattern: ResourcePattern, rules: frozenset[AccessRule]) -> None:
        """Replace the rules of the pattern; an empty set removes the pattern."""
        if self._rules.replace(pattern, rules):
            self._decisions = {}

    def _decide(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> Decision:
        if principal in self._super_users:
            return SUPER_USER
        return self._rules.decide(
            str(principal),
            host,
            operation,
            resource_type,
            name,
            is_open_without_rules=self._is_open_without_rules,
        )

    def _decide_anywhere(
        self, principal: KafkaPrincipal, host: str, operation: Operation, resource_type: ResourceType
    ) -> Decision:
        if principal in self._super_users:
            return SUPER_USER
        return self._rules.decide_anywhere(
            str(principal),
            host,
            operation,
            resource_type,
            is_open_without_rules=self._is_open_without_rules,
        )

    def _remember(self, key: object, decision: Decision) -> None:
        if len(self._decisions) >= DECISIONS_REMEMBERED_MAX:
            self._decisions = {}
        self._decisions[key] = decision


def authorized_operations(
    authorizer: Authorizer, principal: KafkaPrincipal, host: str, resource_type: ResourceType, name: str
) -> int:
    """Allowed operations among those of the resource type, as bits: bit n is operation n."""
    return sum(
        1 << operation
        for operation in OPERATIONS[resource_type]
        if authorizer.allows(principal, host, operation, resource_type, name, audited=False)
    )


def parse_super_users(text: str) -> frozenset[KafkaPrincipal]:
    """`User:alice;User:CN=b,O=c`: a certificate's name contains commas, so semicolons separate."""
    return frozenset(KafkaPrincipal.parse(each.strip()) for each in text.split(";") if each.strip())
