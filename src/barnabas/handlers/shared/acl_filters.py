"""ACL filters of DescribeAcls and DeleteAcls."""

from __future__ import annotations

from barnabas.protocol.messages.delete_acls import DeleteAclsFilter
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.security.acl.bindings import AclFilter
from barnabas.security.acl.vocabulary import Operation, PatternType, Permission, ResourceType, from_code

VERSION_WITH_PATTERNS = 1


def filter_of(asked: DeleteAclsFilter | DescribeAclsRequest, api_version: int) -> AclFilter:
    """The filter as the authorizer takes it. Version 0 has no pattern type: its patterns are literal."""
    is_plain = api_version < VERSION_WITH_PATTERNS
    return AclFilter(
        from_code(ResourceType, asked.resource_type_filter),
        asked.resource_name_filter,
        PatternType.LITERAL if is_plain else from_code(PatternType, asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        from_code(Operation, asked.operation),
        from_code(Permission, asked.permission_type),
    )
