"""ACL requests: find, create and delete access rules. They go to the controller, though any broker can
answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.client.admin.calls.per_resource import each_row
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import Steps, raise_for
from barnabas.core.errors import KafkaError, error_for
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas.protocol.messages.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResponse
from barnabas.security.acl.bindings import AccessRule, AclBinding, AclFilter, ResourcePattern
from barnabas.security.acl.vocabulary import Operation, PatternType, Permission, ResourceType, from_code


class Acls:
    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def find(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        """Bindings that match any of the filters."""
        found: dict[AclBinding, None] = {}
        for wanted in filters:
            for binding in await self._find_one(wanted):
                found[binding] = None
        return sorted(found)

    async def create(self, bindings: Sequence[AclBinding]) -> dict[AclBinding, None]:
        """Create all bindings with one request; an error for each that is refused."""

        def attempt(left: Mapping[AclBinding, None]) -> Steps[dict[AclBinding, KafkaError | None]]:
            request = CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=pattern.resource_type,
                        resource_name=pattern.name,
                        resource_pattern_type=pattern.pattern_type,
                        principal=rule.principal,
                        host=rule.host,
                        operation=rule.operation,
                        permission_type=rule.permission,
                    )
                    for pattern, rule in left
                ]
            )
            answer = yield from self._cluster.state.ask_controller(request, CreateAclsResponse)
            return {
                binding: error_for(row.error_code, row.error_message or str(binding))
                if row.error_code
                else None
                for binding, row in zip(left, answer.results, strict=True)
            }

        return await self._cluster.run(each_row(self._cluster.state, dict.fromkeys(bindings), attempt))

    async def delete(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        """Delete the bindings that match; returns them."""
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=wanted.resource_type,
                    resource_name_filter=wanted.name,
                    pattern_type_filter=wanted.pattern_type,
                    principal_filter=wanted.principal,
                    host_filter=wanted.host,
                    operation=wanted.operation,
                    permission_type=wanted.permission,
                )
                for wanted in filters
            ]
        )

        def attempt() -> Steps[list[AclBinding]]:
            answer = yield from self._cluster.state.ask_controller(request, DeleteAclsResponse)
            gone: list[AclBinding] = []
            for result in answer.filter_results:
                raise_for(result.error_code, result.error_message, "access rules")
                for each in result.matching_acls:
                    raise_for(each.error_code, each.error_message, f"access rule of {each.resource_name}")
                    pattern = _pattern(each.resource_type, each.resource_name, each.pattern_type)
                    gone.append(AclBinding(pattern, _rule(each)))
            return gone

        return await self._cluster.run_with_retries(attempt)

    async def _find_one(self, wanted: AclFilter) -> list[AclBinding]:
        request = DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )

        def attempt() -> Steps[list[AclBinding]]:
            answer = yield from self._cluster.state.ask_controller(request, DescribeAclsResponse)
            raise_for(answer.error_code, answer.error_message, "access rules")
            return [
                AclBinding(
                    _pattern(resource.resource_type, resource.resource_name, resource.pattern_type),
                    _rule(each),
                )
                for resource in answer.resources
                for each in resource.acls
            ]

        return await self._cluster.run_with_retries(attempt)


def _pattern(resource_type: int, name: str, pattern_type: int) -> ResourcePattern:
    return ResourcePattern(from_code(ResourceType, resource_type), name, from_code(PatternType, pattern_type))


def _rule(each: AclDescription | DeleteAclsMatchingAcl) -> AccessRule:
    return AccessRule(
        each.principal,
        each.host,
        from_code(Operation, each.operation),
        from_code(Permission, each.permission_type),
    )
