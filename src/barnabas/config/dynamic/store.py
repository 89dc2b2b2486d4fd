"""Interface of the repository to the coordination store, which keeps the dynamic settings.

An entity has a type and a plain name; the store itself encodes the name. `cluster.stores.config_store` has
the implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from barnabas.config.dynamic.client_entities import ClientEntityStore

TOPICS: Final = "topics"
BROKERS: Final = "brokers"
GROUPS: Final = "groups"
CLIENT_METRICS: Final = "client-metrics"

DEFAULT_ENTITY: Final = "<default>"
"""The entity whose settings hold for all entities without settings of their own."""

Overrides = dict[str, str] | None
"""Settings of an entity; None if they are unreadable."""

OverridesChange = Callable[[Overrides], Mapping[str, str]]


class ConfigStore(ClientEntityStore, Protocol):
    async def read(self, entity_type: str, name: str) -> Overrides: ...

    async def read_all(self, entity_type: str) -> dict[str, Overrides]: ...

    async def read_topics(self, topics: Sequence[str]) -> list[Overrides]: ...

    async def existing_topics(self, topics: Sequence[str]) -> list[str]: ...

    async def change(self, entity_type: str, name: str, change: OverridesChange) -> None:
        """Replace the present settings with `change` of them, and notify the other brokers.

        `change` may be called again: another broker may write between the read and the write. An error that
        it raises ends the operation."""
