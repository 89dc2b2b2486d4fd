"""CreateAcls (30), v0-3. Gaps: none. Kafka 4 dropped v0, which knows no prefixes.

Each rule succeeds or fails by itself. Rules of one pattern are written together.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError, SecurityDisabled
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.failures import as_kafka_error, code_and_message
from barnabas.requests.registry import Api
from barnabas.security.acl.bindings import AccessRule, AclBinding, ResourcePattern
from barnabas.security.acl.vocabulary import Operation, PatternType, Permission, ResourceType, from_code


async def handle_create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    acls = context.broker.acls
    if acls is None:
        raise SecurityDisabled("no authorizer is configured")
    failures: dict[int, KafkaError] = {}
    wanted: dict[ResourcePattern, dict[int, AccessRule]] = {}
    for place, creation in enumerate(request.creations):
        await context.breathe()
        binding = _binding(creation)
        try:
            binding.check()
        except KafkaError as error:
            failures[place] = error
        else:
            wanted.setdefault(binding.pattern, {})[place] = binding.rule
    for pattern, rules in wanted.items():
        new = frozenset(rules.values())
        try:
            await acls.change(pattern, new.union)
        except Exception as error:  # noqa: BLE001 - each rule has its own error
            failures |= dict.fromkeys(rules, as_kafka_error(error, f"creating rules for {pattern}"))
    return CreateAclsResponse(
        results=[_result(failures.get(place)) for place in range(len(request.creations))]
    )


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            from_code(ResourceType, creation.resource_type),
            creation.resource_name,
            from_code(PatternType, creation.resource_pattern_type),
        ),
        AccessRule(
            creation.principal,
            creation.host,
            from_code(Operation, creation.operation),
            from_code(Permission, creation.permission_type),
        ),
    )


def _result(failure: KafkaError | None) -> AclCreationResult:
    code, message = code_and_message(failure)
    return AclCreationResult(error_code=code, error_message=message)


def _refused(request: CreateAclsRequest, error: KafkaError, _: int) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_result(error) for _ in request.creations])


CREATE_ACLS = Api(ApiKey.CREATE_ACLS, handle=handle_create_acls, refused=_refused)
