"""DescribeClientQuotas (48), v0-1. Gaps: none.

A filter has a component for each entity type that an entity must have: exactly this name, the default, or any
name. A strict filter excludes entities that also have other types.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.config.dynamic.client_entities import IPS, EntityPath
from barnabas.core.errors import InvalidRequest, KafkaError, UnsupportedVersion
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from barnabas.quota.keys import NAME_IN_REQUESTS, TYPE_IN_REQUESTS, quotas_in
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api

EXACT, DEFAULT, ANY = 0, 1, 2

Filter = dict[str, ComponentData]
"""Components by the type of their entities in the store."""


def handle_describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> Sliced[DescribeClientQuotasResponse]:
    wanted = _filter(request.components)
    entries = []
    for path, values in context.broker.configs.clients:
        yield
        quotas = quotas_in(values)
        if quotas and _matches(path, wanted, is_strict=request.strict):
            entries.append(
                EntryData(
                    entity=[
                        EntityData(entity_type=NAME_IN_REQUESTS[part.type], entity_name=part.name)
                        for part in path
                    ],
                    values=[ValueData(key=key, value=quotas[key]) for key in sorted(quotas)],
                )
            )
    return DescribeClientQuotasResponse(entries=entries, error_message=None)


def _filter(components: Sequence[ComponentData]) -> Filter:
    wanted: Filter = {}
    for component in components:
        if not component.entity_type:
            raise InvalidRequest("Unexpected empty filter component entity type")
        type_ = TYPE_IN_REQUESTS.get(component.entity_type)
        if type_ is None:
            raise UnsupportedVersion(f"Custom entity type '{component.entity_type}' not supported")
        if type_ in wanted:
            raise InvalidRequest(
                f"Entity type {component.entity_type} cannot appear more than once in the filter"
            )
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise InvalidRequest(f"Unexpected match type {component.match_type}")
        if component.match_type == EXACT and component.match is None:
            raise InvalidRequest("Request specified match type EXACT, but no match string")
        wanted[type_] = component
    if IPS in wanted and len(wanted) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination, IP filter component should not be used with user or"
            " clientId filter component."
        )
    return wanted


def _matches(path: EntityPath, wanted: Filter, *, is_strict: bool) -> bool:
    names = dict(path)
    if is_strict and names.keys() != wanted.keys():
        return False
    return all(type_ in names and _is(names[type_], component) for type_, component in wanted.items())


def _is(name: str | None, component: ComponentData) -> bool:
    if component.match_type == EXACT:
        return name == component.match
    return component.match_type == ANY or name is None


def refused(
    _request: DescribeClientQuotasRequest, error: KafkaError, _version: int
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)


DESCRIBE_CLIENT_QUOTAS = Api(
    ApiKey.DESCRIBE_CLIENT_QUOTAS, handle=handle_describe_client_quotas, refused=refused
)
