"""A compacted topic with keyed writes, tombstones among them, and what compaction promises.

Of every key the last record survives on every replica, tombstones for `delete.retention.ms`; what survives
is at the offset at which it was acknowledged, and in the order in which it was written. Cleaners of different
brokers run at different times, so replicas need not be alike. The topic is compacted by turns and kept whole
by turns: what compaction has left must be read, copied and recovered by a log that is compacted no longer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from barnabas.client import transaction_steps
from barnabas.client.admin import Admin
from barnabas.client.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError
from barnabas.protocol.config_numbers import ResourceType
from barnabas.records.batch import RecordBatch
from barnabas.records.record import iterate_records
from tests.chaos.history import ALL_REPLICAS, History
from tests.simulation import judge
from tests.simulation.cast import ALL_BROKERS, Client, Part, Stage, Topic
from tests.simulation.clients import Batches, World

TOPIC = "compacted"
PARTITIONS = 2
HOT_KEYS, COLD_KEYS = 4, 40
"""Most writes are of a few keys; the last record of another is soon in a segment that is compacted."""
COLD = 0.3
TOMBSTONES = 0.15
PAUSE_S = 0.15
POLICY_PAUSE_S = 30.0
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "700",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "3600000",
    "file.delete.delay.ms": "1000",
}


@dataclass(slots=True)
class KeyedWrite:
    key: bytes
    number: int
    partition: int
    is_tombstone: bool
    offset: int | None = None
    """None if it was not acknowledged."""


@dataclass(slots=True)
class Kept:
    """A record as a replica has it."""

    offset: int
    key: bytes
    number: int | None
    """None for a tombstone."""


@dataclass(slots=True)
class Copy:
    """What one replica of one partition holds."""

    broker: int
    partition: int
    records: list[Kept] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{TOPIC}-{self.partition} on broker {self.broker}"


class Compaction(Part):
    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._replicas = chance.choice((1, ALL_BROKERS))
        self._writes: list[KeyedWrite] = []
        self._copies: list[Copy] = []

    def topics(self) -> dict[str, Topic]:
        safe = {"flush.messages": "1", "min.insync.replicas": "1"} if self._replicas == 1 else {}
        return {TOPIC: Topic(PARTITIONS, self._replicas, {**CONFIGS, **safe})}

    def clients(self, stage: Stage) -> Iterator[Client]:
        yield "keyed", self._write(stage.world("keyed", History()))
        yield "policy", self._change_policy(stage.world("policy", History()))

    async def _write(self, world: World) -> None:
        cluster = await world.open("keyed")
        batches = Batches(cluster, TOPIC, ALL_REPLICAS, world.clock.now_ms)
        is_identified = False
        while not world.is_over():
            number = len(self._writes)
            is_cold = world.chance.random() < COLD
            key = (
                HOT_KEYS + world.chance.randrange(COLD_KEYS) if is_cold else world.chance.randrange(HOT_KEYS)
            )
            write = KeyedWrite(
                f"key-{key}".encode(), number, key % PARTITIONS, world.chance.random() < TOMBSTONES
            )
            self._writes.append(write)
            try:
                if not is_identified:
                    batches.identify(*await cluster.run(transaction_steps.idempotent_producer(cluster.state)))
                    is_identified = True
                value = None if write.is_tombstone else str(number).encode()
                offset = await batches.write_rows([(write.key, value)], write.partition)
                write.offset = offset if offset >= 0 else None
            except (KafkaError, ClusterUnreachable):
                is_identified = False
            await world.pause(PAUSE_S)

    async def _change_policy(self, world: World) -> None:
        cluster = await world.open("policy")
        while not world.is_over():
            for policy in ("delete", "compact"):
                await world.pause(POLICY_PAUSE_S)
                with suppress(KafkaError, ClusterUnreachable):
                    await Admin(cluster).alter_configs(
                        ResourceType.TOPIC, TOPIC, changes={"cleanup.policy": policy}
                    )

    async def look(self, stage: Stage) -> None:
        for partition in range(PARTITIONS):
            for machine in judge.holders(stage.machines, TOPIC, partition):
                copy = Copy(machine.number, partition)
                for data in judge.batches(machine.files, TOPIC, partition).values():
                    batch = RecordBatch(memoryview(bytearray(data)))
                    if not batch.is_control:
                        copy.records += [
                            Kept(
                                each.offset,
                                bytes(each.key or b""),
                                None if each.value is None else int(bytes(each.value)),
                            )
                            for each in iterate_records(batch)
                        ]
                self._copies.append(copy)

    def complaints(self) -> list[str]:
        found: list[str] = []
        for partition in range(PARTITIONS):
            copies = [copy for copy in self._copies if copy.partition == partition]
            if not copies:
                found.append(f"lost log: nobody has {TOPIC}-{partition}")
            for copy in copies:
                found += complaints_of(copy, [each for each in self._writes if each.partition == partition])
        return found


def complaints_of(copy: Copy, writes: list[KeyedWrite]) -> Iterator[str]:
    by_offset = {each.offset: each for each in writes if each.offset is not None}
    by_number = {each.number: each for each in writes}
    last_offset = -1
    latest: dict[bytes, Kept] = {}
    for record in copy.records:
        if record.offset <= last_offset:
            yield f"compacted out of order: {copy} has {record.offset} after {last_offset}"
        last_offset = record.offset
        written = by_offset.get(record.offset)
        if written is not None and (record.key, record.number) != _row(written):
            yield f"compacted elsewhere: {copy} has {record} where {written} was acknowledged"
        former = latest.get(record.key)
        if former is not None and record.number is not None and record.number < (former.number or -1):
            yield f"compacted out of order: {copy} has {record} after {former}"
        if record.number is not None and by_number[record.number].offset not in (None, record.offset):
            yield f"compacted elsewhere: {copy} has {record}, acknowledged at {by_number[record.number]}"
        latest[record.key] = record
    for key in sorted({each.key for each in writes}):
        promised = [each for each in writes if each.key == key and each.offset is not None]
        if promised:
            last = promised[-1]
            kept = latest.get(key)
            if kept is None or (last.offset is not None and kept.offset < last.offset):
                yield f"compacted away: of {key!r} {copy} has {kept}, and {last} was acknowledged"


def _row(write: KeyedWrite) -> tuple[bytes, int | None]:
    return write.key, None if write.is_tombstone else write.number
