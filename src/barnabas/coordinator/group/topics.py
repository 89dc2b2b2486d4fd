"""What groups need to know of topics: names, ids, how many partitions.

`cluster.metadata_cache.MetadataCache` fits; tests bring a table of their own. That a topic is not known there
does not say that it is gone: that is for the coordination store to say (`FindTopics`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from barnabas.core.ids import Uuid

StoredIds = Mapping[str, Uuid | None]
"""What the store says of topics, by name: their ids (ZERO_UUID: it has none), None for one that is gone. Of
what is left out nothing could be learnt."""

FindTopics = Callable[[Collection[str], Callable[[StoredIds], None]], None]
"""Asks the store; answers later."""


class Topic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> Uuid: ...
    @property
    def partitions(self) -> Sequence[object]: ...


class Topics(Protocol):
    @property
    def generation(self) -> int:
        """Grows with every change."""
        ...

    def topic(self, name: str) -> Topic | None: ...
    def topic_by_id(self, topic_id: Uuid) -> Topic | None: ...
    def topic_names(self) -> list[str]: ...
