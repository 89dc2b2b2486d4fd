"""Store of pipelines: a compacted topic of the cluster.

Each pipeline has one record. The key is its name; the value holds its configuration (secrets as references),
target state and checkpoint generation. The record of a deleted pipeline keeps its last generation. Its
checkpoints may be on another machine, and a later pipeline of the same name must not continue with them. The
topic has one partition, so its order is the order of changes, and reading it from the start gives the present
state.

The same order decides which of two services runs the pipelines. Each service writes a claim when it opens,
under a key that no pipeline can have. The last claim holds: a service that reads a later claim releases the
pipelines. The holder writes heartbeats, and a tombstone for its claim when it ends in order. A service that
sees no heartbeats, or the tombstone, may claim. Every record names its writer. So a follower distinguishes
its own changes, and ignores heartbeats and releases of a service that no longer holds the claim.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.config.admin_keys import ADMIN_KEYS
from barnabas.client.config.consumer_keys import CONSUMER_KEYS
from barnabas.client.config.producer_keys import PRODUCER_KEYS
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.core.retries import BACKOFF
from barnabas.client.extensions.records import Record
from barnabas.client.producer.producer import Producer
from barnabas.config.definitions.keys import Definition
from barnabas.core.clock import Clock
from barnabas.core.errors import RequestTimedOut, TopicAlreadyExists
from barnabas.core.ids import Randomness, TopicPartition
from barnabas.core.reporting.error_isolation import complain
from barnabas.pipelines.service.errors import AWAY

logger = logging.getLogger(__name__)

ClientConfig: TypeAlias = Callable[[Definition], Mapping[str, Any]]
"""Properties of one kind of client, as far as its definition has them."""

TOPIC = "__barnabas_pipelines"
CLAIM_KEY = b"service:claim"
HEARTBEAT_KEY = b"service:beat"
"""Keys that no pipeline can have: its name has no colon."""
PAUSE_MS = 100.0
POLL_MS = 500.0
PRODUCER_SETTINGS: Final[Mapping[str, Any]] = {
    "linger_ms": 0,
    "request_timeout_ms": 15_000,
    "delivery_timeout_ms": 30_000,
    "max_block_ms": 30_000,
    "max_request_size": 16 * 1024 * 1024,
}
"""A user waits for a change: it is stored, or fails, in this time. The broker decides what is too large."""
CAUGHT_UP_WITHIN_S = 30.0
WRITER = "writer"
"""Header that names the writing service."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim of a service: it runs the pipelines from this record on."""

    service_id: str
    worker_id: str
    """Address where the service listens, for messages."""


class Target(Enum):
    """State that the user wants. The supervisor knows the actual state."""

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
    """Start of this generation, if a user set offsets: topic to partition to offset."""

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
    """Content of a record: a claim, heartbeat or release, or the new state of a pipeline."""

    writer: str
    claim: Claim | None = None
    is_heartbeat: bool = False
    """The writer still holds the claim."""
    is_release: bool = False
    """The writer releases the claim."""
    is_gap: bool = False
    """Reading failed for a while: missing heartbeats prove nothing."""
    name: str = ""
    stored: Stored | None = None
    """None if the pipeline is deleted."""
    deleted_generation: int | None = None
    """Last generation of a deleted pipeline."""


class PipelineStore:
    """Used as a context: `async with PipelineStore(config, service_id) as store`."""

    def __init__(
        self,
        config: ClientConfig,
        service_id: str,
        topic: str = TOPIC,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.service_id = service_id
        self._config = config
        self._topic = topic
        self._clock = clock
        self._randomness = randomness
        self._only = TopicPartition(topic, 0)
        self._producer = Producer(
            config(PRODUCER_KEYS), clock=clock, randomness=randomness, **PRODUCER_SETTINGS
        )
        self._position = 0
        """Offset of the first record that neither `load` nor `follow` has passed on."""
        self._has_moved = asyncio.Event()
        self.leader: Claim | None = None
        """Last claim when the pipelines were loaded."""
        self.deleted_generations: dict[str, int] = {}
        """Last generation of every deleted pipeline when the pipelines were loaded."""

    async def __aenter__(self) -> Self:
        await self._producer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._producer.close()

    async def claim(self, worker_id: str) -> None:
        """Claim the pipelines; the previous holder reads the claim and releases them."""
        await self._create()
        value = json.dumps({"service_id": self.service_id, "worker_id": worker_id}).encode()
        await self._send(CLAIM_KEY, value)

    async def heartbeat(self) -> None:
        """Show that this service still holds the claim."""
        await self._send(HEARTBEAT_KEY, b"{}")

    async def release(self) -> None:
        """Release the claim."""
        await self._send(CLAIM_KEY, None)

    async def load(self) -> dict[str, Stored]:
        """All stored pipelines. Creates the topic if it does not exist."""
        await self._create()
        found: dict[str, Stored] = {}
        async with self._consumer() as consumer:
            end = (await consumer.end_offsets([self._only]))[self._only]
            await consumer.seek_to_beginning()
            while await consumer.position(self._only) < end:
                for change in _changes(await consumer.poll(timeout_ms=PAUSE_MS)):
                    self.leader = change.claim or self.leader
                    _replay(found, self.deleted_generations, change)
            self._position = await consumer.position(self._only)
        return found

    async def follow(self) -> AsyncGenerator[Change]:
        """Changes after those of `load`, without end. Retries while the cluster is out of reach."""
        async with self._consumer() as consumer:
            consumer.seek(self._only, self._position)
            pause_ms = PAUSE_MS
            while True:
                try:
                    self._position = await consumer.position(self._only)
                    self._has_moved.set()
                    changes = _changes(await consumer.poll(timeout_ms=POLL_MS))
                    if not changes:  # the records of a cluster out of reach are missing silently
                        await consumer.end_offsets([self._only])
                except Exception as error:  # noqa: BLE001 - after any error, claims of others must still be read
                    if isinstance(error, AWAY):
                        logger.warning("the pipelines topic cannot be read, retrying: %s", error)
                    else:
                        complain("reading the pipelines topic", "", error)
                    await asyncio.sleep(pause_ms / 1_000)
                    pause_ms = BACKOFF.following_ms(pause_ms)
                    yield Change("", is_gap=True)
                    continue
                pause_ms = PAUSE_MS
                for change in changes:
                    yield change

    async def caught_up(self) -> None:
        """Wait until `follow` has passed on every change that the topic holds now."""
        try:
            async with asyncio.timeout(CAUGHT_UP_WITHIN_S):
                async with self._consumer() as consumer:
                    end = (await consumer.end_offsets([self._only]))[self._only]
                while self._position < end:
                    self._has_moved.clear()
                    await self._has_moved.wait()
        except TimeoutError:
            raise RequestTimedOut(
                f"{self._topic} is not read up to its end within {CAUGHT_UP_WITHIN_S:.0f} s"
            ) from None

    async def put(self, stored: Stored) -> None:
        await self._send(stored.name.encode(), stored.to_bytes())

    async def delete(self, name: str, generation: int) -> None:
        await self._send(name.encode(), json.dumps({"deleted": generation}).encode())

    async def _send(self, key: bytes, value: bytes | None) -> None:
        headers = [(WRITER, self.service_id.encode())]
        await self._producer.publish(self._topic, value, key=key, headers=headers, partition=0)

    async def _create(self) -> None:
        async with Admin(self._config(ADMIN_KEYS), clock=self._clock, randomness=self._randomness) as admin:
            with suppress(TopicAlreadyExists):
                await admin.create_topics(
                    [NewTopic(self._topic, partitions=1, configs={"cleanup.policy": "compact"})]
                )

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[Consumer]:
        consumer: Consumer = Consumer(
            self._config(CONSUMER_KEYS),
            clock=self._clock,
            randomness=self._randomness,
            auto_offset_reset="earliest",
        )
        async with consumer:
            await consumer.assign([self._only])
            yield consumer


def _changes(records: Sequence[Record]) -> list[Change]:
    """Changes in the records of one poll.

    An invalid record (of another program, or of a later release) is skipped: stopping at it would miss the
    claims and changes that follow.
    """
    changes = []
    for record in records:
        if record.key is None:
            continue
        try:
            changes.append(_change(record))
        except (KeyError, TypeError, ValueError) as error:
            logger.error(
                "pipelines topic: skipping the invalid record at offset %d: %r", record.offset, error
            )
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
