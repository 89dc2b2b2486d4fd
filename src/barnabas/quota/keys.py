"""Quota keys, and the entities that can have them.

In requests an entity is named by `user`, `client-id` and `ip`. A null name is the default for entities
without a quota of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.config.dynamic.client_entities import CLIENTS, IPS, USERS, EntityPart, EntityPath
from barnabas.core.errors import InvalidRequest

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
ADDRESS_KEYS: Final = (CONNECTION_CREATION_RATE,)
QUOTA_KEYS: Final = frozenset((*CLIENT_KEYS, *ADDRESS_KEYS))

_LARGEST_WHOLE: Final = {
    PRODUCER_BYTE_RATE: (1 << 63) - 1,
    CONSUMER_BYTE_RATE: (1 << 63) - 1,
    CONNECTION_CREATION_RATE: (1 << 31) - 1,
}
"""Keys with integral values."""

TYPE_IN_REQUESTS: Final = {"user": USERS, "client-id": CLIENTS, "ip": IPS}
NAME_IN_REQUESTS: Final = {stored: name for name, stored in TYPE_IN_REQUESTS.items()}


def entity_path(parts: Sequence[tuple[str, str | None]]) -> EntityPath:
    """The entity that a request names; INVALID_REQUEST if it is malformed."""
    if not parts:
        raise InvalidRequest("Invalid empty client quota entity")
    found: dict[str, str | None] = {}
    for type_, name in parts:
        stored_type = TYPE_IN_REQUESTS.get(type_)
        if stored_type is None:
            raise InvalidRequest(f"Unhandled client quota entity type: {type_}")
        if stored_type in found:
            raise InvalidRequest(f"Invalid client quota entity, duplicate entity entry {type_}")
        if name == "":
            raise InvalidRequest(f"Empty {type_} not supported")
        found[stored_type] = name
    if IPS in found and len(found) > 1:
        raise InvalidRequest(
            "Invalid quota entity combination, IP entity should not be used with User or ClientId."
        )
    return tuple(EntityPart(type_, found[type_]) for type_ in (USERS, CLIENTS, IPS) if type_ in found)


def check_value(path: EntityPath, key: str, value: float) -> None:
    """INVALID_REQUEST unless the entity can have this quota."""
    if key not in (ADDRESS_KEYS if path[0].type == IPS else CLIENT_KEYS):
        raise InvalidRequest(f"Invalid configuration key {key}")
    if not value > 0:
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    largest = _LARGEST_WHOLE.get(key)
    if largest is None:
        if value == float("inf"):
            raise InvalidRequest(f"Quota {key} must be a number")
    elif value > largest:
        raise InvalidRequest(f"Proposed value for {key} is too large")
    elif value != int(value):
        raise InvalidRequest(f"{key} cannot be a fractional value.")


def stored_value(key: str, value: float) -> str:
    return str(int(value)) if key in _LARGEST_WHOLE else str(value)


def quotas_in(values: Mapping[str, str]) -> dict[str, float]:
    """The quotas among an entity's configs; values that are not positive numbers limit nothing."""
    found = {}
    for key in QUOTA_KEYS.intersection(values):
        try:
            limit = float(values[key])
        except ValueError:
            continue
        if limit > 0:
            found[key] = limit
    return found
