"""Where pipelines are remembered: a compacted topic of the cluster itself.

One record per pipeline, its name the key, its configuration (secrets as references), target
state and checkpoint generation the value. Of one that is deleted the last generation stays: its
checkpoints may lie where nobody can remove them, and a pipeline of the same name that is made later
must not go on with them. The topic has one partition, so its order is the order of changes, and
reading it from the start gives the present.

The same order settles which of two services runs the pipelines: each writes a claim when it
opens, under a key that no pipeline can have, and the last claim holds. Whoever follows the topic
sees a later claim, and knows that it is over. Who holds the claim says so again and again, and takes
it back when it ends in order (a tombstone); others who hear neither may claim in their turn. Every
record names the service that wrote it, so that a follower can tell its own changes from those of
others, and a sign of life or a farewell from one who no longer holds the claim counts for nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from barnabas.client.admin import Admin
from barnabas.client.cluster_client import ClusterClient
from barnabas.client.consumer import Consumer, list_offsets
from barnabas.client.producer import OutgoingRecord, Producer
from barnabas.core.errors import TopicAlreadyExists
from barnabas.core.sweeping import complain
from barnabas.pipelines.service.errors import AWAY
from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from barnabas.records.record import Record

log = logging.getLogger(__name__)

TOPIC = "__barnabas_pipelines"
CLAIM_KEY = b"service:claim"
HEARTBEAT_KEY = b"service:beat"
"""No pipeline's name has a colon."""
PAUSE_MS = 100.0
WRITER = "writer"
"""The header that names the service a record is from."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A service says that it runs the pipelines from here on."""

    service_id: str
    worker_id: str
    """Where it listens, for people."""


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


@dataclass(frozen=True, slots=True)
class Change:
    """What a record of the topic says: a claim, or a pipeline as it is from here on."""

    writer: str
    claim: Claim | None = None
    is_heartbeat: bool = False
    """The writer says that it is alive."""
    is_release: bool = False
    """The writer no longer runs the pipelines, if it did."""
    is_gap: bool = False
    """Nothing could be read for a while: silence proves nothing."""
    name: str = ""
    stored: Stored | None = None
    """None when the pipeline is forgotten."""
    deleted_generation: int | None = None
    """Of a pipeline that is forgotten: its last generation."""


class PipelineStore:
    def __init__(self, cluster: ClusterClient, service_id: str, topic: str = TOPIC) -> None:
        self.service_id = service_id
        self._cluster = cluster
        self._topic = topic
        self._producer = Producer(cluster)
        self._position = 0
        """The first record that `load` has not seen."""
        self.leader: Claim | None = None
        """Whose claim was the last when the pipelines were loaded."""
        self.deleted_generations: dict[str, int] = {}
        """The last generation of every pipeline that was deleted, when the pipelines were loaded."""

    async def claim(self, worker_id: str) -> None:
        """From here on the pipelines are this service's; an earlier one will see it and let go."""
        await self._create()
        value = json.dumps({"service_id": self.service_id, "worker_id": worker_id}).encode()
        await self._send(CLAIM_KEY, value)

    async def heartbeat(self) -> None:
        """Say that the claim is still held."""
        await self._send(HEARTBEAT_KEY, b"{}")

    async def release(self) -> None:
        """The pipelines are nobody's from here on, if they were this service's."""
        await self._send(CLAIM_KEY, None)

    async def load(self) -> dict[str, Stored]:
        """Every pipeline there is; the topic is created if this is the first time."""
        await self._create()
        found: dict[str, Stored] = {}
        begin = (await list_offsets(self._cluster, self._topic, [0], EARLIEST))[0]
        end = (await list_offsets(self._cluster, self._topic, [0], LATEST))[0]
        async with Consumer(self._cluster, self._topic, {0: begin}) as consumer:
            while consumer.positions[0] < end:
                for change in await _poll(consumer):
                    self.leader = change.claim or self.leader
                    _replay(found, self.deleted_generations, change)
            self._position = consumer.positions[0]
        return found

    async def follow(self) -> AsyncGenerator[Change]:
        """What comes after what was loaded, without end; a cluster that cannot be reached is waited for."""
        async with Consumer(self._cluster, self._topic, {0: self._position}) as consumer:
            pause_ms = PAUSE_MS
            while True:
                try:
                    changes = await _poll(consumer)
                except Exception as error:  # noqa: BLE001 - whatever it is, others' claims must go on being seen
                    if isinstance(error, AWAY):
                        log.warning("the topic of pipelines cannot be read: %s", error)
                    else:
                        complain("reading the topic of pipelines", "", error)
                    pause_ms = await self._cluster.pause(pause_ms)
                    yield Change("", is_gap=True)
                    continue
                pause_ms = PAUSE_MS
                for change in changes:
                    yield change

    async def put(self, stored: Stored) -> None:
        await self._send(stored.name.encode(), stored.to_bytes())

    async def delete(self, name: str, generation: int) -> None:
        await self._send(name.encode(), json.dumps({"deleted": generation}).encode())

    async def _send(self, key: bytes, value: bytes | None) -> None:
        headers = [(WRITER, self.service_id.encode())]
        await self._producer.send(self._topic, [OutgoingRecord(key, value, headers, partition=0)])

    async def _create(self) -> None:
        with suppress(TopicAlreadyExists):
            await Admin(self._cluster).create_topic(
                self._topic, partitions=1, configs={"cleanup.policy": "compact"}
            )


async def _poll(consumer: Consumer) -> list[Change]:
    """What makes no sense (somebody else's record, or one of a later release) is passed over: whoever
    stumbled over it would miss the claims and the changes that follow."""
    changes = []
    for _, record in await consumer.poll():
        if record.key is None:
            continue
        try:
            changes.append(_change(record))
        except (KeyError, TypeError, ValueError) as error:
            log.error("record %d of the topic of pipelines makes no sense: %r", record.offset, error)
    return changes


def _change(record: Record) -> Change:
    assert record.key is not None
    key, value = bytes(record.key), record.value
    writers = [bytes(value or b"").decode() for name, value in record.headers if name == WRITER]
    writer = writers[0] if writers else ""
    if key == HEARTBEAT_KEY:
        return Change(writer, is_heartbeat=True)
    if key == CLAIM_KEY:
        if value is None:
            return Change(writer, is_release=True)
        return Change(writer, claim=Claim(**json.loads(bytes(value))))
    name = key.decode()
    if value is None:
        return Change(writer, name=name)
    document = json.loads(bytes(value))
    if "deleted" in document:
        return Change(writer, name=name, deleted_generation=int(document["deleted"]))
    return Change(writer, name=name, stored=Stored.of_bytes(name, bytes(value)))


def _replay(found: dict[str, Stored], deleted_generations: dict[str, int], change: Change) -> None:
    if not change.name:
        return
    if change.deleted_generation is not None:
        deleted_generations[change.name] = change.deleted_generation
    if change.stored is None:
        found.pop(change.name, None)
    else:
        found[change.name] = change.stored
