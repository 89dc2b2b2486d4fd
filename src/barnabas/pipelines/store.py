"""Where pipelines are remembered: a compacted topic of the cluster itself.

One record per pipeline, its name the key, its configuration (secrets as references), target
state and checkpoint generation the value; a tombstone forgets it. The topic has one partition,
so its order is the order of changes, and reading it from the start gives the present.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from barnabas.client.admin import Admin
from barnabas.client.cluster_client import ClusterClient
from barnabas.client.consumer import EARLIEST, LATEST, Consumer, list_offsets
from barnabas.client.producer import OutgoingRecord, Producer
from barnabas.core.errors import TopicAlreadyExists

TOPIC = "__barnabas_pipelines"


class Target(Enum):
    """What the user wants of a pipeline; what it is, the supervisor knows."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class Stored:
    name: str
    config: Mapping[str, str]
    target: Target = Target.RUNNING
    generation: int = 0
    starting_offsets: Mapping[str, Mapping[str, int]] | None = None
    """Where this generation begins, if offsets were set by hand: topic to partition to offset."""

    def with_target(self, target: Target) -> Stored:
        return replace(self, target=target)

    def next_generation(self, starting_offsets: Mapping[str, Mapping[str, int]] | None) -> Stored:
        return replace(self, generation=self.generation + 1, starting_offsets=starting_offsets)

    def to_bytes(self) -> bytes:
        document = {
            "config": dict(self.config),
            "target": self.target.value,
            "generation": self.generation,
            "starting_offsets": self.starting_offsets,
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def of_bytes(cls, name: str, value: bytes) -> Stored:
        document: dict[str, Any] = json.loads(value)
        return cls(
            name,
            document["config"],
            Target(document["target"]),
            int(document["generation"]),
            document.get("starting_offsets"),
        )


class PipelineStore:
    def __init__(self, cluster: ClusterClient, topic: str = TOPIC) -> None:
        self._cluster = cluster
        self._topic = topic
        self._producer = Producer(cluster)

    async def load(self) -> dict[str, Stored]:
        """Every pipeline there is; the topic is created if this is the first time."""
        await self._create()
        found: dict[str, Stored] = {}
        begin = (await list_offsets(self._cluster, self._topic, [0], EARLIEST))[0]
        end = (await list_offsets(self._cluster, self._topic, [0], LATEST))[0]
        async with Consumer(self._cluster, self._topic, {0: begin}) as consumer:
            while consumer.positions[0] < end:
                for _, record in await consumer.poll():
                    _replay(found, record.key, record.value)
        return found

    async def put(self, stored: Stored) -> None:
        await self._producer.send(
            self._topic, [OutgoingRecord(stored.name.encode(), stored.to_bytes(), partition=0)]
        )

    async def delete(self, name: str) -> None:
        await self._producer.send(self._topic, [OutgoingRecord(name.encode(), None, partition=0)])

    async def _create(self) -> None:
        try:
            await Admin(self._cluster).create_topic(
                self._topic, partitions=1, configs={"cleanup.policy": "compact"}
            )
        except TopicAlreadyExists:
            return


def _replay(
    found: dict[str, Stored], key: bytes | memoryview | None, value: bytes | memoryview | None
) -> None:
    if key is None:
        return
    name = bytes(key).decode()
    if value is None:
        found.pop(name, None)
    else:
        found[name] = Stored.of_bytes(name, bytes(value))
