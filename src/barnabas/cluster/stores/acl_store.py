"""ACLs in the coordination store, under Kafka's own paths.

The ACLs of one pattern are one node. Each change reads the node and writes it back on the condition that its
version is the same; after a conflict it reads again. So no concurrent change is lost. The same transaction
creates the change notification: there is no change without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.cluster.coordination.contract import (
    BadVersion,
    Coordination,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    children_if_any,
)
from barnabas.cluster.znodes.acls import AclChangeZnode, AclEntry, AclZnode
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.core.errors import InvalidRequest
from barnabas.security.acl.bindings import AccessRule, ResourcePattern
from barnabas.security.acl.vocabulary import Operation as AclOperation
from barnabas.security.acl.vocabulary import PatternType, Permission, ResourceType, from_text

Rules = frozenset[AccessRule]

AT_ONCE_MAX = 500
"""Largest number of nodes read in one request batch."""


async def make_acl_paths(znodes: Coordination) -> None:
    """Create the parents of ACL nodes and of change notifications."""
    paths = [AclChangeZnode.LITERAL_PARENT, AclChangeZnode.EXTENDED_PARENT]
    paths += [_type_path(kind, prefixed) for kind in _kinds() for prefixed in (False, True)]
    await znodes.make_paths(paths)


async def list_patterns(znodes: Coordination) -> list[ResourcePattern]:
    """All patterns that have a node."""
    return [
        ResourcePattern(kind, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL)
        for kind in _kinds()
        for prefixed in (False, True)
        for name in await children_if_any(znodes, _type_path(kind, prefixed))
    ]


async def read_rules(
    znodes: Coordination, patterns: Sequence[ResourcePattern]
) -> Mapping[ResourcePattern, Rules | MalformedZnode]:
    """ACLs of each pattern, or the error if they are malformed; empty for a pattern without a node."""
    rules: dict[ResourcePattern, Rules | MalformedZnode] = {}
    for start in range(0, len(patterns), AT_ONCE_MAX):
        some = patterns[start : start + AT_ONCE_MAX]
        nodes = await znodes.get_many([_path(pattern) for pattern in some])
        for pattern, node in zip(some, nodes, strict=True):
            try:
                rules[pattern] = frozenset() if node is None else _decode(node[0], pattern)
            except MalformedZnode as error:
                rules[pattern] = error
    return rules


async def change_rules(
    znodes: Coordination, pattern: ResourcePattern, change: Callable[[Rules], Rules]
) -> tuple[Rules, Rules]:
    """Change the ACLs of a pattern; returns them before and after.

    `change` may be called several times and must not depend on how often.
    """
    path = _path(pattern)
    while True:
        (node,) = await znodes.get_many([path])
        before = frozenset() if node is None else _decode(node[0], pattern)
        after = change(before)
        if after == before:
            return before, after
        write: Operation
        if node is None:
            write = Create(path, _encode(after))
        elif after:
            write = SetData(path, _encode(after), node[1].version)
        else:
            write = Delete(path, node[1].version)
        try:
            await znodes.multi([write, _note(pattern)])
        except (BadVersion, NodeExists, NoNode):
            continue  # another writer was first
        return before, after


def named_by_notification(data: bytes, *, extended: bool) -> ResourcePattern:
    """Pattern that a change notification names."""
    if extended:
        kind, name = AclChangeZnode.decode_prefixed(data)
    else:
        kind, name = AclChangeZnode.decode_literal(data)
    pattern_type = PatternType.PREFIXED if extended else PatternType.LITERAL
    try:
        return ResourcePattern(from_text(ResourceType, kind), name, pattern_type)
    except InvalidRequest as error:
        raise MalformedZnode(error.message) from error


def _note(pattern: ResourcePattern) -> Create:
    kind = pattern.resource_type.shown_as
    if pattern.pattern_type is PatternType.PREFIXED:
        data = AclChangeZnode.encode_prefixed(kind, pattern.name)
        return Create(AclChangeZnode.EXTENDED_CREATE_PATH, data, sequential=True)
    data = AclChangeZnode.encode_literal(kind, pattern.name)
    return Create(AclChangeZnode.LITERAL_CREATE_PATH, data, sequential=True)


def _kinds() -> Iterable[ResourceType]:
    return (kind for kind in ResourceType if kind.is_definite)


def _type_path(kind: ResourceType, prefixed: bool) -> str:
    return AclZnode.type_path(kind.shown_as, prefixed=prefixed)


def _path(pattern: ResourcePattern) -> str:
    is_prefixed = pattern.pattern_type is PatternType.PREFIXED
    return AclZnode.path(pattern.resource_type.shown_as, pattern.name, prefixed=is_prefixed)


def _encode(rules: Rules) -> bytes:
    return AclZnode.encode(
        AclEntry(rule.principal, rule.permission.shown_as, rule.operation.shown_as, rule.host)
        for rule in rules
    )


def _decode(data: bytes, pattern: ResourcePattern) -> Rules:
    try:
        return frozenset(
            AccessRule(
                entry.principal,
                entry.host,
                from_text(AclOperation, entry.operation),
                from_text(Permission, entry.permission_type),
            )
            for entry in AclZnode.decode(data)
        )
    except InvalidRequest as error:
        raise MalformedZnode(f"the rules of {pattern}: {error.message}") from error
