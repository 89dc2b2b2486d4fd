"""Where settings that were made at run time are kept: what the repository asks of the coordination store.

An entity is named by its type and its name, both as people know them; how it is spelt in the store is the
store's affair. `cluster.config_store` has the implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from barnabas.config.client_entities import ClientEntityStore

TOPICS: Final = "topics"
BROKERS: Final = "brokers"
GROUPS: Final = "groups"

DEFAULT_ENTITY: Final = "<default>"
"""The entity whose settings hold for all that have none of their own."""

Overrides = dict[str, str] | None
"""What is set for an entity; None if that cannot be read."""


class ConfigStore(ClientEntityStore, Protocol):
    async def read(self, entity_type: str, name: str) -> Overrides: ...

    async def read_all(self, entity_type: str) -> dict[str, Overrides]: ...

    async def read_topics(self, topics: Sequence[str]) -> list[Overrides]: ...

    async def existing_topics(self, topics: Sequence[str]) -> list[str]: ...

    async def write(self, entity_type: str, name: str, overrides: Mapping[str, str]) -> None:
        """Replace what is set, and let the other brokers know."""
