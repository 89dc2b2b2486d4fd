"""What groups need to know of topics: names, ids, how many partitions.

`cluster.metadata_cache.MetadataCache` fits; tests bring a table of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas.core.ids import Uuid


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
