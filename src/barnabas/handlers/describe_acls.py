"""DescribeAcls (29), v0-3. Gaps: none. Kafka 4 removed v0, which has no prefixed patterns."""

from __future__ import annotations

from barnabas.core.errors import InvalidRequest, SecurityDisabled
from barnabas.core.steps import Sliced
from barnabas.handlers.shared.acl_filters import filter_of
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.bindings import ResourcePattern


def handle_describe_acls(
    request: DescribeAclsRequest, context: RequestContext
) -> Sliced[DescribeAclsResponse]:
    acls = context.broker.acls
    if acls is None:
        raise SecurityDisabled("no authorizer is configured on the broker")
    wanted = filter_of(request, context.api_version)
    if not wanted.is_known:
        raise InvalidRequest("the filter has elements that are not known")
    found: dict[ResourcePattern, DescribeAclsResource] = {}
    for pattern, rule in list(acls.authorizer.find(wanted)):
        resource = found.get(pattern)
        if resource is None:
            resource = found[pattern] = DescribeAclsResource(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                acls=[],
            )
        resource.acls.append(
            AclDescription(
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
        )
        yield
    return DescribeAclsResponse(error_message=None, resources=list(found.values()))


DESCRIBE_ACLS = Api(ApiKey.DESCRIBE_ACLS, handle=handle_describe_acls)
