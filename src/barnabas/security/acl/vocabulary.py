"""Kafka's enums of access control, by their numbers on the wire.

Each word has a second spelling, which znodes and the tools use: `TransactionalId`, `DescribeConfigs`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

from barnabas.core.errors import (
    ClusterAuthorizationFailed,
    DelegationTokenAuthorizationFailed,
    GroupAuthorizationFailed,
    InvalidRequest,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)


class Word(IntEnum):
    """All words have UNKNOWN and ANY: UNKNOWN is never valid, ANY only in a filter."""

    @property
    def shown_as(self) -> str:
        """`DescribeConfigs` for DESCRIBE_CONFIGS."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def is_definite(self) -> bool:
        """Whether the word is valid in a rule; ANY and UNKNOWN are not."""
        return self > 1


class ResourceType(Word):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(Word):
    """MATCH is for filters: it finds every pattern that covers a resource of that name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(Word):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(Word):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


W = TypeVar("W", bound=Word)

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of the type CLUSTER."""

WILDCARD: Final = "*"
"""As a literal name: every resource of the type. As a host: every host."""

EVERYONE: Final = "User:*"

OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""Operations that apply to each resource type."""

DENIED: Final[dict[ResourceType, type[KafkaError]]] = {
    ResourceType.TOPIC: TopicAuthorizationFailed,
    ResourceType.GROUP: GroupAuthorizationFailed,
    ResourceType.CLUSTER: ClusterAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
    ResourceType.DELEGATION_TOKEN: DelegationTokenAuthorizationFailed,
    ResourceType.USER: DelegationTokenAuthorizationFailed,
}
"""Error of a denied operation, by resource type."""


def granting(operation: Operation) -> frozenset[Operation]:
    """Operations whose ALLOW rule permits this one: itself, ALL, and those that imply it."""
    return _GRANTING[operation]


_GRANTING = {each: frozenset({each, Operation.ALL}) for each in Operation} | {
    Operation.DESCRIBE: frozenset(
        {
            Operation.DESCRIBE,
            Operation.ALL,
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
        }
    ),
    Operation.DESCRIBE_CONFIGS: frozenset(
        {Operation.DESCRIBE_CONFIGS, Operation.ALL, Operation.ALTER_CONFIGS}
    ),
}


def from_code(words: type[W], code: int) -> W:
    """The word with this number; UNKNOWN for an unknown number."""
    try:
        return words(code)
    except ValueError:
        return words(0)


def from_text(words: type[W], text: str) -> W:
    """The word in either spelling and any case: `describe_configs`, `DescribeConfigs`."""
    wanted = text.replace("_", "").replace("-", "").lower()
    for word in words:
        if word.name.replace("_", "").lower() == wanted:
            return word
    known = ", ".join(each.shown_as for each in words if each.is_definite)
    raise InvalidRequest(f"{text!r} is none of {known}")
