"""Configuration overrides in the coordination store, under `/config`."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.cluster.coordination.contract import Coordination
from barnabas.cluster.stores import client_entities as client_entity_znodes
from barnabas.cluster.stores.errors import as_client_errors
from barnabas.cluster.stores.topics import change_config, read_config, read_configs, readable_config
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.cluster.znodes.layout import ConfigZnode, TopicZnode, desanitize, sanitize
from barnabas.config.dynamic.client_entities import EntityPath, Values, ValuesChange
from barnabas.config.dynamic.store import Overrides, OverridesChange

logger = logging.getLogger(__name__)


class ZnodeConfigStore:
    """Store of overrides. Operations for a client raise client errors, the others the store's errors."""

    def __init__(self, znodes: Coordination) -> None:
        self._znodes = znodes

    async def read(self, entity_type: str, name: str) -> Overrides:
        try:
            return await read_config(self._znodes, entity_type, sanitize(name))
        except MalformedZnode as error:
            logger.error("%s: %s", ConfigZnode.path(entity_type, sanitize(name)), error)
            return None

    async def read_all(self, entity_type: str) -> dict[str, Overrides]:
        stored = await read_configs(self._znodes, entity_type)
        return {desanitize(name): overrides for name, overrides in stored.items()}

    async def read_topics(self, topics: Sequence[str]) -> list[Overrides]:
        paths = [ConfigZnode.path(ConfigZnode.TOPICS, topic) for topic in topics]
        with as_client_errors():
            nodes = await self._znodes.get_many(paths)
        return [
            readable_config(f"{ConfigZnode.TOPICS}/{topic}", node[0]) if node is not None else {}
            for topic, node in zip(topics, nodes, strict=True)
        ]

    async def existing_topics(self, topics: Sequence[str]) -> list[str]:
        with as_client_errors():
            nodes = await self._znodes.get_many([TopicZnode.path(topic) for topic in topics])
        return [topic for topic, node in zip(topics, nodes, strict=True) if node]

    async def change(self, entity_type: str, name: str, change: OverridesChange) -> None:
        with as_client_errors():
            await change_config(self._znodes, entity_type, sanitize(name), change)

    async def read_entity(self, path: EntityPath) -> Values | None:
        return await client_entity_znodes.read_entity(self._znodes, path)

    async def read_entities(self) -> dict[EntityPath, Values]:
        return await client_entity_znodes.read_entities(self._znodes)

    async def change_entity(self, path: EntityPath, change: ValuesChange) -> Values:
        with as_client_errors():
            return await client_entity_znodes.change_entity(self._znodes, path, change)
