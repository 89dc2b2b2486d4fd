"""Access table: the ACL operations that each API needs, as in Apache Kafka.

The dispatcher checks rights to the request as a whole, before the handler runs (`guards`). The handler checks
rights to the topics, groups and transactional ids in it, and alternatives, element by element.
`docs/SECURITY.md` is rendered from the table, and the tests try each row allowed and denied.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from barnabas.protocol.api_keys import ApiKey
from barnabas.requests.context import RequestContext
from barnabas.security.acl.vocabulary import CLUSTER_NAME, Operation, ResourceType

ALL_VERSIONS = range(1 << 15)


class Denied(Enum):
    """Consequence of a missing right."""

    REQUEST = "the request is refused"
    ELEMENT = "the denied element has the error"
    LEFT_OUT = "the denied element is left out of the response"
    BITS = "the authorized operations are 0"


class Right(NamedTuple):
    operation: Operation
    resource_type: ResourceType

    def __str__(self) -> str:
        return f"{self.operation.shown_as} on {self.resource_type.shown_as}"


class Check(NamedTuple):
    rights: tuple[Right, ...]
    """Any one of them suffices."""
    denied: Denied
    of: str
    """The resource, in words."""
    field: str | None = None
    """Request field that names the resource, if the dispatcher checks it. Null needs no right."""
    versions: range = ALL_VERSIONS


def _cluster(operation: Operation, *others: Operation) -> Check:
    rights = tuple(Right(each, ResourceType.CLUSTER) for each in (operation, *others))
    return Check(rights, Denied.REQUEST, "the cluster", "")


def _group(operation: Operation) -> Check:
    return Check((Right(operation, ResourceType.GROUP),), Denied.REQUEST, "the group", "group_id")


def _transaction(field: str = "transactional_id", versions: range = ALL_VERSIONS) -> Check:
    right = Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
    return Check((right,), Denied.REQUEST, "the transactional id", field, versions)


def _each(operation: Operation, resource_type: ResourceType, of: str) -> Check:
    return Check((Right(operation, resource_type),), Denied.ELEMENT, of)


_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
_CONFIG_TYPES = (
    (_TOPIC, "a topic"),
    (_CLUSTER, "a broker, its loggers, client metrics"),
    (_GROUP, "a group"),
)


def _configs(operation: Operation) -> tuple[Check, ...]:
    return tuple(
        _each(operation, kind, f"the cluster, for {of}" if kind is _CLUSTER else of)
        for kind, of in _CONFIG_TYPES
    )


ACCESS: dict[ApiKey, tuple[Check, ...]] = {
    ApiKey.PRODUCE: (
        Check(
            (Right(Operation.WRITE, _TRANSACTIONAL_ID),),
            Denied.REQUEST,
            "the transactional id, if any batch is transactional (also one without an id)",
        ),
        _each(Operation.WRITE, _TOPIC, "each topic"),
    ),
    ApiKey.FETCH: (
        _each(Operation.READ, _TOPIC, "each topic of the request or its session, for consumers"),
        _each(Operation.CLUSTER_ACTION, _CLUSTER, "the cluster, for followers"),
    ),
    ApiKey.LIST_OFFSETS: (_each(Operation.DESCRIBE, _TOPIC, "each topic"),),
    ApiKey.METADATA: (
        _each(Operation.DESCRIBE, _TOPIC, "each topic that is named"),
        Check((Right(Operation.DESCRIBE, _TOPIC),), Denied.LEFT_OUT, "each topic, when all are asked for"),
        Check(
            (Right(Operation.CREATE, _CLUSTER), Right(Operation.CREATE, _TOPIC)),
            Denied.ELEMENT,
            "the cluster or the topic that would be created",
        ),
        Check(
            (Right(Operation.DESCRIBE, _CLUSTER),),
            Denied.BITS,
            "the cluster, for its authorized operations",
            versions=range(8, 11),
        ),
    ),
    ApiKey.LEADER_AND_ISR: (_cluster(Operation.CLUSTER_ACTION),),
    ApiKey.STOP_REPLICA: (_cluster(Operation.CLUSTER_ACTION),),
    ApiKey.UPDATE_METADATA: (_cluster(Operation.CLUSTER_ACTION),),
    ApiKey.CONTROLLED_SHUTDOWN: (_cluster(Operation.CLUSTER_ACTION),),
    ApiKey.OFFSET_COMMIT: (_group(Operation.READ), _each(Operation.READ, _TOPIC, "each topic")),
    ApiKey.OFFSET_FETCH: (
        _each(Operation.DESCRIBE, _GROUP, "each group"),
        _each(Operation.DESCRIBE, _TOPIC, "each topic that is named"),
        Check((Right(Operation.DESCRIBE, _TOPIC),), Denied.LEFT_OUT, "each topic, when all are asked for"),
    ),
    ApiKey.FIND_COORDINATOR: (
        _each(Operation.DESCRIBE, _GROUP, "each group"),
        _each(Operation.DESCRIBE, _TRANSACTIONAL_ID, "each transactional id"),
    ),
    ApiKey.JOIN_GROUP: (_group(Operation.READ),),
    ApiKey.HEARTBEAT: (_group(Operation.READ),),
    ApiKey.LEAVE_GROUP: (_group(Operation.READ),),
    ApiKey.SYNC_GROUP: (_group(Operation.READ),),
    ApiKey.DESCRIBE_GROUPS: (_each(Operation.DESCRIBE, _GROUP, "each group"),),
    ApiKey.LIST_GROUPS: (
        Check(
            (Right(Operation.DESCRIBE, _CLUSTER), Right(Operation.DESCRIBE, _GROUP)),
            Denied.LEFT_OUT,
            "the cluster, or each group",
        ),
    ),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.API_VERSIONS: (),
    ApiKey.CREATE_TOPICS: (
        Check(
            (Right(Operation.CREATE, _CLUSTER), Right(Operation.CREATE, _TOPIC)),
            Denied.ELEMENT,
            "the cluster, or each topic",
        ),
        Check(
            (Right(Operation.DESCRIBE_CONFIGS, _TOPIC),),
            Denied.ELEMENT,
            "each topic, for its configs",
            versions=range(5, 1 << 15),
        ),
    ),
    ApiKey.DELETE_TOPICS: (
        _each(Operation.DELETE, _TOPIC, "each topic"),
        _each(Operation.DESCRIBE, _TOPIC, "each topic that is named by its id, for the name"),
    ),
    ApiKey.DELETE_RECORDS: (_each(Operation.DELETE, _TOPIC, "each topic"),),
    ApiKey.INIT_PRODUCER_ID: (
        _transaction(),
        Check(
            (Right(Operation.IDEMPOTENT_WRITE, _CLUSTER), Right(Operation.WRITE, _TOPIC)),
            Denied.REQUEST,
            "the cluster, or any topic, without a transactional id",
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Check(
            (Right(Operation.CLUSTER_ACTION, _CLUSTER), Right(Operation.DESCRIBE, _TOPIC)),
            Denied.ELEMENT,
            "the cluster, or each topic",
        ),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _transaction("v3_and_below_transactional_id", range(4)),
        _each(Operation.WRITE, _TOPIC, "each topic")._replace(versions=range(4)),
        _cluster(Operation.CLUSTER_ACTION)._replace(versions=range(4, 1 << 15)),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (_transaction(), _group(Operation.READ)),
    ApiKey.END_TXN: (_transaction(),),
    ApiKey.WRITE_TXN_MARKERS: (_cluster(Operation.CLUSTER_ACTION, Operation.ALTER),),
    ApiKey.TXN_OFFSET_COMMIT: (
        _transaction(),
        _group(Operation.READ),
        _each(Operation.READ, _TOPIC, "each topic"),
    ),
    ApiKey.DESCRIBE_ACLS: (_cluster(Operation.DESCRIBE),),
    ApiKey.CREATE_ACLS: (_cluster(Operation.ALTER),),
    ApiKey.DELETE_ACLS: (_cluster(Operation.ALTER),),
    ApiKey.DESCRIBE_CONFIGS: _configs(Operation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: _configs(Operation.ALTER_CONFIGS),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (_cluster(Operation.ALTER),),
    ApiKey.DESCRIBE_LOG_DIRS: (_cluster(Operation.DESCRIBE),),
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.CREATE_PARTITIONS: (_each(Operation.ALTER, _TOPIC, "each topic"),),
    ApiKey.CREATE_DELEGATION_TOKEN: (
        _each(Operation.CREATE_TOKENS, ResourceType.USER, "the owner, if it is another user"),
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: (),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (
        Check(
            (
                Right(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN),
                Right(Operation.DESCRIBE_TOKENS, ResourceType.USER),
            ),
            Denied.LEFT_OUT,
            "each token, or its owner, if it is another user",
        ),
    ),
    ApiKey.DELETE_GROUPS: (_each(Operation.DELETE, _GROUP, "each group"),),
    ApiKey.ELECT_LEADERS: (_cluster(Operation.ALTER),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(Operation.ALTER_CONFIGS),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_cluster(Operation.ALTER),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (_cluster(Operation.DESCRIBE),),
    ApiKey.OFFSET_DELETE: (_group(Operation.DELETE), _each(Operation.READ, _TOPIC, "each topic")),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (_cluster(Operation.DESCRIBE_CONFIGS),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_cluster(Operation.ALTER_CONFIGS),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (_cluster(Operation.DESCRIBE),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (_cluster(Operation.ALTER),),
    ApiKey.DESCRIBE_CLUSTER: (
        Check(
            (Right(Operation.DESCRIBE, _CLUSTER),),
            Denied.BITS,
            "the cluster, for its authorized operations",
        ),
    ),
    ApiKey.DESCRIBE_PRODUCERS: (_each(Operation.READ, _TOPIC, "each topic"),),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        _each(Operation.DESCRIBE, _TRANSACTIONAL_ID, "each transactional id"),
        Check((Right(Operation.DESCRIBE, _TOPIC),), Denied.LEFT_OUT, "each topic of the transaction"),
    ),
    ApiKey.LIST_TRANSACTIONS: (
        Check(
            (Right(Operation.DESCRIBE, _TRANSACTIONAL_ID),), Denied.LEFT_OUT, "each transactional id"
        ),
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        _group(Operation.READ),
        Check((Right(Operation.DESCRIBE, _TOPIC),), Denied.REQUEST, "each topic subscribed to by name"),
        Check((Right(Operation.DESCRIBE, _TOPIC),), Denied.LEFT_OUT, "each topic that a pattern matches"),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        _each(Operation.DESCRIBE, _GROUP, "each group"),
        _each(Operation.DESCRIBE, _TOPIC, "each topic of its members; one hides them all"),
    ),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (),
    ApiKey.PUSH_TELEMETRY: (),
    ApiKey.LIST_CONFIG_RESOURCES: (_cluster(Operation.DESCRIBE_CONFIGS),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        _each(Operation.DESCRIBE, _TOPIC, "each topic that is named"),
        Check((Right(Operation.DESCRIBE, _TOPIC),), Denied.LEFT_OUT, "each topic, when all are asked for"),
    ),
}  # fmt: skip


BEFORE_RIGHTS: dict[ApiKey, frozenset[str]] = {
    ApiKey.PRODUCE: frozenset({"replicas.table.count_failed_produce"}),  # a counter of topics that exist
    ApiKey.FETCH: frozenset(
        {"fetch_sessions.context"}
    ),  # checked before; it keeps no partition without a right
    ApiKey.LIST_GROUPS: frozenset({"groups.runtime.run_everywhere"}),
    ApiKey.LIST_TRANSACTIONS: frozenset({"transactions.runtime.run_everywhere"}),
}
"""Calls to the broker's parts (`requests.services`) that a request makes for a client without any right.

Otherwise rights come before state. A list is read as a whole, and hidden elements are left out before
anything else is read.
"""


def guards(key: ApiKey, version: int) -> tuple[Check, ...]:
    """Checks of the dispatcher for a request in this version."""
    return tuple(each for each in ACCESS[key] if each.field is not None and version in each.versions)


def check_guards(checks: Sequence[Check], request: object, context: RequestContext) -> None:
    """Raise the authorization error for a missing right to the request as a whole."""
    for check in checks:
        name = getattr(request, check.field) if check.field else CLUSTER_NAME
        if name is None:
            continue
        *others, last = check.rights
        if not any(context.allows(*right, name, audited=False) for right in others):
            context.require(*last, name)
