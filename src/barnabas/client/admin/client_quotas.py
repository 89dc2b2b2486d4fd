"""Client quota requests, as steps: quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.client.core.steps import ANY_BROKER, Steps, ask, raise_for
from barnabas.protocol.messages import alter_client_quotas as altering
from barnabas.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

EXACT, DEFAULT = 0, 1

Entity = Mapping[str, str | None]
"""Entity name by type (`user`, `client-id`, `ip`). None is the default of entities without a quota of their
own.
"""


class EntityQuotas(NamedTuple):
    entity: Entity
    quotas: Mapping[str, float]


def describe_quotas(entity: Entity) -> Steps[list[EntityQuotas]]:
    """Quotas of every entity that has these names, further names allowed."""
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
            for kind, name in entity.items()
        ]
    )
    answer = yield from ask(ANY_BROKER, request, DescribeClientQuotasResponse)
    raise_for(answer.error_code, answer.error_message, "quotas")
    return [
        EntityQuotas(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def alter_quotas(entity: Entity, changes: Mapping[str, float], removals: Sequence[str]) -> Steps[None]:
    """Set and remove quotas of one entity, all or none."""
    request = altering.AlterClientQuotasRequest(
        entries=[
            altering.EntryData(
                entity=[
                    altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
                ],
                ops=[
                    *(altering.OpData(key=key, value=value) for key, value in changes.items()),
                    *(altering.OpData(key=key, remove=True) for key in removals),
                ],
            )
        ]
    )
    answer = yield from ask(ANY_BROKER, request, altering.AlterClientQuotasResponse)
    (result,) = answer.entries
    raise_for(result.error_code, result.error_message, "quotas")
