"""ACL znodes: literal patterns under `/kafka-acl`, prefixed ones under `/kafka-acl-extended`.

The words for resource types, operations and permissions are Kafka's (`Topic`, `Read`, `Allow`). The
authorizer interprets them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.cluster.znodes.json_codec import from_json, reading, to_json, to_utf8, written


class AclEntry(NamedTuple):
    principal: str
    permission_type: str
    operation: str
    host: str


class AclZnode:
    LITERAL_ROOT = "/kafka-acl"
    PREFIXED_ROOT = "/kafka-acl-extended/prefixed"

    @staticmethod
    def type_path(resource_type: str, *, prefixed: bool = False) -> str:
        root = AclZnode.PREFIXED_ROOT if prefixed else AclZnode.LITERAL_ROOT
        return f"{root}/{resource_type}"

    @staticmethod
    def path(resource_type: str, resource_name: str, *, prefixed: bool = False) -> str:
        return f"{AclZnode.type_path(resource_type, prefixed=prefixed)}/{resource_name}"

    @staticmethod
    def encode(entries: Iterable[AclEntry]) -> bytes:
        entries = frozenset(entries)
        acls = [
            {
                "principal": entry.principal,
                "permissionType": entry.permission_type,
                "operation": entry.operation,
                "host": entry.host,
            }
            for entry in sorted(entries)
        ]
        return written(entries, to_json({"version": 1, "acls": acls}), AclZnode.decode)

    @staticmethod
    def decode(data: bytes) -> frozenset[AclEntry]:
        if not data:
            return frozenset()
        with reading("an access control list"):
            return frozenset(
                AclEntry(acl["principal"], acl["permissionType"], acl["operation"], acl["host"])
                for acl in from_json(data)["acls"]
            )


def _enum_name(resource_type: str) -> str:
    """Enum name for notifications: `TransactionalId` in paths is TRANSACTIONAL_ID there."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", resource_type).upper()


def _path_name(resource_type: str) -> str:
    """Reverse of `_enum_name`; notifications of older brokers use the path's spelling."""
    if not resource_type.isupper():
        return resource_type
    return "".join(word.capitalize() for word in resource_type.split("_"))


class AclChangeZnode:
    """Notifications of changed ACLs. Those for literal patterns are `TYPE:name`, the others JSON."""

    LITERAL_PARENT = "/kafka-acl-changes"
    LITERAL_CREATE_PATH = f"{LITERAL_PARENT}/acl_changes_"
    EXTENDED_PARENT = "/kafka-acl-extended-changes"
    EXTENDED_CREATE_PATH = f"{EXTENDED_PARENT}/acl_changes_"

    @staticmethod
    def encode_literal(resource_type: str, resource_name: str) -> bytes:
        data = to_utf8(f"{_enum_name(resource_type)}:{resource_name}")
        return written((resource_type, resource_name), data, AclChangeZnode.decode_literal)

    @staticmethod
    def decode_literal(data: bytes) -> tuple[str, str]:
        with reading("an access control change"):
            resource_type, separator, resource_name = data.decode().partition(":")
            if not separator:
                raise ValueError("no separator")
            return _path_name(resource_type), resource_name

    @staticmethod
    def encode_prefixed(resource_type: str, resource_name: str) -> bytes:
        data = to_json(
            {
                "version": 1,
                "resourceType": _enum_name(resource_type),
                "name": resource_name,
                "patternType": "PREFIXED",
            }
        )
        return written((resource_type, resource_name), data, AclChangeZnode.decode_prefixed)

    @staticmethod
    def decode_prefixed(data: bytes) -> tuple[str, str]:
        with reading("an access control change"):
            fields = from_json(data)
            return _path_name(fields["resourceType"]), str(fields["name"])
