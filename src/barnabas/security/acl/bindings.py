"""ACL bindings: a rule with its resource pattern, and filters that find rules."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.errors import InvalidRequest
from barnabas.security.acl.vocabulary import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from barnabas.security.identity.principal import KafkaPrincipal


class ResourcePattern(NamedTuple):
    """Resources by name. `*` as a literal name covers all resources of the type."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def covers(self, name: str) -> bool:
        """Whether the pattern covers a resource of its type with this name."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def __str__(self) -> str:
        return f"{self.resource_type.name}:{self.pattern_type.name}:{self.name}"


class AccessRule(NamedTuple):
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        return f"{self.permission.name} {self.operation.name} to {self.principal} from {self.host}"


class AclBinding(NamedTuple):
    pattern: ResourcePattern
    rule: AccessRule

    def __str__(self) -> str:
        return f"{self.rule} on {self.pattern}"

    def check(self) -> None:
        """Raise INVALID_REQUEST unless the binding can be stored and can take effect."""
        (resource_type, name, pattern_type), (principal, host, operation, permission) = self
        if not (
            resource_type.is_definite
            and pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
            and operation.is_definite
            and permission.is_definite
        ):
            raise InvalidRequest("the rule has elements that are unknown or valid in filters only")
        if resource_type is ResourceType.CLUSTER and name != CLUSTER_NAME:
            raise InvalidRequest(f"the only valid name for the CLUSTER resource is {CLUSTER_NAME}")
        if not name or "/" in name or "\0" in name or name in (".", ".."):
            raise InvalidRequest(f"{name!r} cannot name a resource")
        if not host:
            raise InvalidRequest("the host is empty; * stands for all hosts")
        KafkaPrincipal.parse(principal)


class AclFilter(NamedTuple):
    """None and ANY match everything. MATCH finds each pattern that covers the name."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def is_known(self) -> bool:
        return all((self.resource_type, self.pattern_type, self.operation, self.permission))

    def finds_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is PatternType.MATCH:
            return pattern.covers(self.name)
        return pattern.name == self.name

    def finds_rule(self, rule: AccessRule) -> bool:
        return (
            self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
        )
