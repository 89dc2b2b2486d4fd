"""What handlers ask: may this principal, from this host, do this with that resource?

A decision is remembered under all that it depends on, so a request like an earlier one costs a look-up,
however many rules there are. Any change of the rules forgets all decisions. What clients can name has no
end, so at a bound everything is forgotten too, and names that are too long are decided upon each time.
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
from barnabas.security.principal import KafkaPrincipal

DECISIONS_REMEMBERED_MAX: Final = 65_536

SUPER_USER: Final = Decision(True, "a super user")


class Authorizer(Protocol):
    @property
    def allows_everything(self) -> bool:
        """Nobody need be asked about one element after the other."""
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
        """`audited` is False where a denial is no event: what is filtered out of a list was not asked for."""
        ...

    def allows_anywhere(
        self, principal: KafkaPrincipal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether there can be a resource of the type with which it is allowed."""
        ...


class AllowAll:
    """No authorizer is configured: everybody may do everything."""

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
        super_users: Iterable[KafkaPrincipal] = (),
        *,
        is_open_without_rules: bool = False,
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
        """All for which there are rules."""
        return self._rules.patterns()

    def replace(self, pattern: ResourcePattern, rules: frozenset[AccessRule]) -> None:
        """These are now the rules of the pattern; none forgets the pattern."""
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
    """Of the operations that make sense for the resource those that are allowed: bit n is operation n."""
    return sum(
        1 << operation
        for operation in OPERATIONS[resource_type]
        if authorizer.allows(principal, host, operation, resource_type, name, audited=False)
    )


def parse_super_users(text: str) -> frozenset[KafkaPrincipal]:
    """`User:alice;User:CN=b,O=c`: a name in a certificate has commas."""
    return frozenset(KafkaPrincipal.parse(each.strip()) for each in text.split(";") if each.strip())
