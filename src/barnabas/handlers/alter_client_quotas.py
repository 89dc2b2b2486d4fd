"""AlterClientQuotas (49), v0-1. Gaps: none.

Each entity is changed as a whole or not at all, and has its own error.
"""

from __future__ import annotations

from collections import Counter

from barnabas.config.dynamic.client_entities import IPS, EntityPath, Values
from barnabas.core.addressing.host_lookup import UnknownHost
from barnabas.core.errors import InvalidRequest, KafkaError
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    EntryResult,
    OpData,
)
from barnabas.quota.keys import QUOTA_KEYS, check_value, entity_path, stored_value
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error
from barnabas.requests.registry import Api


async def handle_alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    paths = await context.spread(each(request.entries, _path))
    times = Counter(path for path in paths if not isinstance(path, KafkaError))
    results = []
    for entry, path in zip(request.entries, paths, strict=True):
        await context.breathe()
        result = EntryResult(entity=entry.entity, error_message=None)
        try:
            if isinstance(path, KafkaError):
                raise path
            if times[path] > 1:
                raise InvalidRequest("Duplicate update for entity")
            await _alter(path, entry.ops, context, validate_only=request.validate_only)
        except Exception as error:  # noqa: BLE001 - each entity has its own error
            failure = as_kafka_error(error, "changing a quota")
            result.error_code, result.error_message = failure.code, failure.message
        results.append(result)
    return AlterClientQuotasResponse(entries=results)


def _path(entry: EntryData) -> EntityPath | KafkaError:
    try:
        return entity_path([(part.entity_type, part.entity_name) for part in entry.entity])
    except KafkaError as error:
        return error


async def _alter(
    path: EntityPath, ops: list[OpData], context: RequestContext, *, validate_only: bool
) -> None:
    if len({op.key for op in ops}) < len(ops):
        raise InvalidRequest("a quota is changed more than once")
    for op in ops:
        await context.breathe()
        if not op.remove:
            check_value(path, op.key, op.value)
        elif op.key not in QUOTA_KEYS:
            raise InvalidRequest(f"Invalid configuration key {op.key}")
    if not all(op.remove for op in ops):
        await _check_host(path, context)

    def change(values: Values) -> Values:
        removed = {op.key for op in ops if op.remove}
        added = {op.key: stored_value(op.key, op.value) for op in ops if not op.remove}
        return {key: value for key, value in values.items() if key not in removed} | added

    if not validate_only:
        await context.broker.configs.clients.change(path, change)


async def _check_host(path: EntityPath, context: RequestContext) -> None:
    """An IP quota may name a host. An entry whose host no longer resolves can still be removed."""
    type_, name = path[0]
    if type_ == IPS and name is not None:
        try:
            await context.broker.address_of(name)
        except UnknownHost:
            raise InvalidRequest(f"{name} is not a valid IP or resolvable host") from None


def refused(
    request: AlterClientQuotasRequest, error: KafkaError, _version: int
) -> Sliced[AlterClientQuotasResponse]:
    entries = yield from each(
        request.entries,
        lambda entry: EntryResult(error_code=error.code, error_message=error.message, entity=entry.entity),
    )
    return AlterClientQuotasResponse(entries=entries)


ALTER_CLIENT_QUOTAS = Api(ApiKey.ALTER_CLIENT_QUOTAS, handle=handle_alter_client_quotas, refused=refused)
