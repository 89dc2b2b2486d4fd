"""Interface of the repository to the coordination store, which keeps the dynamic settings.

An entity has a type and a plain name; the store itself encodes the name. `cluster.stores.config_store` has
the implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from barnabas.config.dynamic.client_entities import ClientEntityStore

TOPICS: Final = "topics"
BROKERS: Final = "brokers"
GROUPS: Final = "groups"

DEFAULT_ENTITY: Final = "<default>"
"""The entity whose settings hold for all entities without settings of their own."""

Overrides = dict[str, str] | None
"""Settings of an entity; None if they are unreadable."""


class ConfigStore(ClientEntityStore, Protocol):
    async def read(self, entity_type: str, name: str) -> Overrides: ...

    async def read_all(self, entity_type: str) -> dict[str, Overrides]: ...

    async def read_topics(self, topics: Sequence[str]) -> list[Overrides]: ...

    async def existing_topics(self, topics: Sequence[str]) -> list[str]: ...

    async def write(self, entity_type: str, name: str, overrides: Mapping[str, str]) -> None:
        """Replace the settings, and notify the other brokers."""
