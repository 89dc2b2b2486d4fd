"""What handlers ask of whoever administers topics.

On one node that is `TopicAdmin`, which makes everything true itself; in a cluster `ClusterTopics`,
which writes what shall be and waits until the controller has made it so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from barnabas.config.log_config import LogConfig
from barnabas.controller.topic_rules import TopicSpec
from barnabas.core.errors import KafkaError
from barnabas.core.ids import Uuid


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was made, or could be."""

    name: str
    topic_id: Uuid
    num_partitions: int
    replication_factor: int
    config: LogConfig


class TopicAdministration(Protocol):
    """`timeout_ms` bounds the wait for the cluster; None: as long as seems right."""

    async def create_topic(
        self, spec: TopicSpec, *, validate_only: bool = False, timeout_ms: float | None = None
    ) -> CreatedTopic:
        """Make a topic; with `validate_only` say whether it could be made."""
        ...

    async def auto_create(self, names: Sequence[str]) -> dict[str, KafkaError]:
        """Make the topics that do not exist, with the defaults; returns what went wrong."""
        ...

    async def create_partitions(
        self,
        topic: str,
        count: int,
        by_hand: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Give a topic more partitions, so that it has `count` of them."""
        ...

    async def delete_topic(self, topic: str, *, timeout_ms: float | None = None) -> Uuid:
        """Delete a topic and everything in it; returns the id that it had."""
        ...
