"""DeleteAcls (31), v0-3. Gaps: none. Kafka 4 removed v0, which has no prefixed patterns.

ACLs that a filter matches are deleted pattern by pattern, each with its own error. An ACL that several
filters match appears under the first of them.
"""

from __future__ import annotations

from barnabas.cluster.stores.acl_replica import AclReplica
from barnabas.core.errors import InvalidRequest, KafkaError, SecurityDisabled
from barnabas.core.steps import Sliced
from barnabas.handlers.shared.acl_filters import filter_of
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error, code_and_message
from barnabas.requests.registry import Api
from barnabas.security.acl.bindings import AccessRule, AclFilter, ResourcePattern


async def handle_delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    acls = context.broker.acls
    if acls is None:
        raise SecurityDisabled("no authorizer is configured")
    results = []
    for asked in request.filters:
        await context.breathe()
        wanted = filter_of(asked, context.api_version)
        if not wanted.is_known:
            results.append(_failed(InvalidRequest("the filter has elements that are not known")))
            continue
        result = DeleteAclsFilterResult(error_message=None, matching_acls=[])
        for pattern in dict.fromkeys(binding.pattern for binding in acls.authorizer.find(wanted)):
            result.matching_acls += await _delete(pattern, wanted, acls)
        results.append(result)
    return DeleteAclsResponse(filter_results=results)


async def _delete(
    pattern: ResourcePattern, wanted: AclFilter, acls: AclReplica
) -> list[DeleteAclsMatchingAcl]:
    """The ACLs that the store held when they were deleted, which may differ from this broker's cache."""

    def left(rules: frozenset[AccessRule]) -> frozenset[AccessRule]:
        return frozenset(rule for rule in rules if not wanted.finds_rule(rule))

    failure: KafkaError | None = None
    try:
        before, after = await acls.change(pattern, left)
        gone = before - after
    except Exception as error:  # noqa: BLE001 - each rule has its own error
        failure = as_kafka_error(error, f"deleting rules of {pattern}")
        known = acls.authorizer.of(pattern)
        gone = known - left(known)
    code, message = code_and_message(failure)
    return [
        DeleteAclsMatchingAcl(
            error_code=code,
            error_message=message,
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            pattern_type=pattern.pattern_type,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for rule in sorted(gone)
    ]


def _failed(error: KafkaError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error.code, error_message=error.message, matching_acls=[])


def _refused(request: DeleteAclsRequest, error: KafkaError, _: int) -> Sliced[DeleteAclsResponse]:
    return DeleteAclsResponse(filter_results=(yield from each(request.filters, lambda _: _failed(error))))


DELETE_ACLS = Api(ApiKey.DELETE_ACLS, handle=handle_delete_acls, refused=_refused)
