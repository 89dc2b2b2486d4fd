"""CreateAcls (30), v0-3. Gaps: none. Kafka 4 removed v0, which has no prefixed patterns.

Each ACL has its own error. ACLs of one resource pattern are written together.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError, SecurityDisabled
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error, code_and_message
from barnabas.requests.registry import Api
from barnabas.security.acl.bindings import AccessRule, AclBinding, ResourcePattern
from barnabas.security.acl.vocabulary import Operation, PatternType, Permission, ResourceType, from_code

CodeAndMessage = tuple[int, str | None]


async def handle_create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    acls = context.broker.acls
    if acls is None:
        raise SecurityDisabled("no authorizer is configured")
    failures: dict[int, CodeAndMessage] = {}  # an error would keep its traceback, for each of 100,000 ACLs
    wanted: dict[ResourcePattern, dict[int, AccessRule]] = {}
    for index, creation in enumerate(request.creations):
        await context.breathe()
        binding = _binding(creation)
        try:
            binding.check()
        except KafkaError as error:
            failures[index] = code_and_message(error)
        else:
            wanted.setdefault(binding.pattern, {})[index] = binding.rule
    for pattern, rules in wanted.items():
        new = frozenset(rules.values())
        try:
            await acls.change(pattern, new.union)
        except Exception as error:  # noqa: BLE001 - each rule has its own error
            failed = code_and_message(as_kafka_error(error, f"creating rules for {pattern}"))
            failures |= dict.fromkeys(rules, failed)
    results = each(range(len(request.creations)), lambda index: _result(failures.get(index, (0, None))))
    return CreateAclsResponse(results=await context.spread(results))


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


def _result(failure: CodeAndMessage) -> AclCreationResult:
    code, message = failure
    return AclCreationResult(error_code=code, error_message=message)


def _refused(request: CreateAclsRequest, error: KafkaError, _: int) -> Sliced[CreateAclsResponse]:
    refusal = code_and_message(error)
    return CreateAclsResponse(results=(yield from each(request.creations, lambda _: _result(refusal))))


CREATE_ACLS = Api(ApiKey.CREATE_ACLS, handle=handle_create_acls, refused=_refused)
