"""Questions and interventions that a test has for one broker and for a cluster alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from uuid import uuid4

from barnabas.client.admin.groups import GroupDescription
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.ids import TopicPartition
from barnabas.testing.asking import inspection, interventions
from barnabas.testing.asking.inspection import StoredRecord
from barnabas.testing.asking.names import check_group_state

T = TypeVar("T")

WAIT_S: Final = 30.0


class Looking(ABC):
    """Questions that a broker and a cluster both answer."""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""

    @abstractmethod
    def _ask(self, question: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """Put a question as a client, and wait for the answer."""

    def records(self, topic: str, *, committed: bool = False) -> list[StoredRecord]:
        """All records of a topic, by partition and offset; `committed` leaves out those of open and aborted
        transactions."""
        return self._ask(lambda cluster: inspection.read_records(cluster, topic, committed=committed))

    def values(self, topic: str, *, committed: bool = False) -> list[bytes | None]:
        """The values of `records`."""
        return [each.value for each in self.records(topic, committed=committed)]

    def table(self, topic: str, *, committed: bool = False) -> dict[bytes | None, bytes | None]:
        """The last value of each key, as a compacted topic keeps it. A key without a value is left out."""
        last = {each.key: each.value for each in self.records(topic, committed=committed)}
        return {key: value for key, value in last.items() if value is not None}

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Committed offsets of a group, by topic and partition."""
        return self._ask(lambda cluster: inspection.committed_offsets(cluster, group))

    def wait_for(
        self, *, group: str, state: str | None = None, members: int | None = None, timeout_s: float = WAIT_S
    ) -> GroupDescription:
        """Wait until a group has this state ("Stable", "Empty", …) and number of members."""
        if state is not None:
            check_group_state(state)
        return self._ask(
            lambda cluster: inspection.await_group(
                cluster, group, state=state, members=members, timeout_s=timeout_s
            )
        )

    def create_topic(
        self, name: str = "", *, partitions: int = 1, replication_factor: int = -1, **configs: str
    ) -> str:
        """Create a topic, with a unique name unless one is given, and return the name. Settings have
        underscores for dots: `retention_ms="1000"`."""
        name = name or f"topic-{uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self._ask(
            lambda cluster: inspection.create_topic(cluster, name, partitions, settings, replication_factor)
        )
        return name

    def rebalance(self, group: str) -> None:
        """Begin a rebalance of a group. Its members notice it with their next heartbeat."""
        self._ask(lambda cluster: interventions.rebalance(cluster, group))

    def fence_members(self, group: str) -> int:
        """Remove all members from a group; returns their number. They are zombies until they join again."""
        return self._ask(lambda cluster: interventions.remove_members(cluster, group))

    def fence_producer(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id, and abort its open transaction."""
        self._ask(lambda cluster: interventions.fence_producer(cluster, transactional_id))
