"""A compacted topic with keyed writes, tombstones among them, and what compaction promises.

Of every key the last record survives on every replica, tombstones for `delete.retention.ms`; what survives
is at the offset at which it was acknowledged, and in the order in which it was written. Cleaners of different
brokers run at different times, so replicas need not be alike. The topic is compacted by turns and kept whole
by turns: what compaction has left must be read, copied and recovered by a log that is compacted no longer.

Transactions write the same keys, and some abort: a reader of committed records never gets what was aborted,
and always the last committed record of a key. A replica moves between the log directories of its broker.
Where tombstones expire soon, a deleted key may be gone altogether, and never comes back; that is asked of a
single replica only, since one that was away for longer than `delete.retention.ms` misses a tombstone in
Apache Kafka, too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core import transaction_steps
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType
from barnabas.records.batch import RecordBatch
from barnabas.records.record import iterate_records
from tests.chaos.history import ALL_REPLICAS, History
from tests.simulation import judge
from tests.simulation.cast import ALL_BROKERS, Client, Part, Stage, Topic
from tests.simulation.clients import TRANSACTION_TIMEOUT_MS, Batches, World
from tests.simulation.final_reading import COMMITTED_ONLY, LATEST
from tests.simulation.moving import change_directory
from tests.support.plain_consumer import Consumer, list_offsets

TOPIC = "compacted"
PARTITIONS = 2
HOT_KEYS, COLD_KEYS, MANY_COLD_KEYS = 4, 40, 160
"""Most writes are of a few keys; the last record of another is soon in a segment that is compacted."""
COLD = 0.3
TOMBSTONES = 0.15
PAUSE_S = 0.15
POLICY_PAUSE_S = 30.0
MOVE_PAUSE_S = 12.0
ROWS_MAX = 5
COMMITS = 0.6
NEVER, GOES, MAY_BE_MISSED = "never", "goes", "may be missed"
VISIBLE = 0
"""Stands for a reader where the number of a broker is expected."""
Buffer = bytes | bytearray | memoryview
SHORT_RETENTION = "log.cleaner.delete.retention.ms"
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "700",
    "min.cleanable.dirty.ratio": "0.01",
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
    writer: str = ""
    is_aborted: bool = False
    is_undecided: bool = False
    """Of a transaction that may be committed, or not."""

    @property
    def is_promised(self) -> bool:
        return self.offset is not None and not self.is_aborted and not self.is_undecided


@dataclass(slots=True)
class Kept:
    """A record as a replica has it."""

    offset: int
    key: bytes
    number: int | None
    """None for a tombstone."""


@dataclass(slots=True)
class Copy:
    """Records of one replica of one partition."""

    broker: int
    partition: int
    records: list[Kept] = field(default_factory=list)

    def __str__(self) -> str:
        where = f"on broker {self.broker}" if self.broker else "as readers get it"
        return f"{TOPIC}-{self.partition} {where}"


class Compaction(Part):
    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._replicas = chance.choice((1, ALL_BROKERS))
        self._writes: list[KeyedWrite] = []
        self._copies: list[Copy] = []
        self._visible: list[Copy] = []
        self._is_short = False
        self._cold_keys = COLD_KEYS

    def topics(self) -> dict[str, Topic]:
        safe = {"flush.messages": "1", "min.insync.replicas": "1"} if self._replicas == 1 else {}
        return {TOPIC: Topic(PARTITIONS, self._replicas, {**CONFIGS, **safe})}

    def clients(self, stage: Stage) -> Iterator[Client]:
        yield "keyed", self._write(stage.world("keyed", History()))
        yield "policy", self._change_policy(stage.world("policy", History()))
        self._is_short = SHORT_RETENTION in stage.settings
        if stage.settings:
            self._cold_keys = MANY_COLD_KEYS
            yield "keyed-transactor", self._transact(stage.world("keyed-transactor", History()))
            yield "keyed-mover", self._move(stage.world("keyed-mover", History()))

    async def _write(self, world: World) -> None:
        cluster = await world.open("keyed")
        batches = Batches(cluster, TOPIC, ALL_REPLICAS, world.clock.now_ms)
        is_identified = False
        while not world.is_over():
            write = self._draw(world)
            try:
                if not is_identified:
                    batches.identify(*await cluster.run(transaction_steps.idempotent_producer(cluster.state)))
                    is_identified = True
                offset = await batches.write_rows([_cells(write)], write.partition)
                write.offset = offset if offset >= 0 else None
            except (KafkaError, ClusterUnreachable):
                is_identified = False
            await world.pause(PAUSE_S)

    def _draw(self, world: World, partition: int | None = None) -> KeyedWrite:
        is_cold = world.chance.random() < COLD
        key = (
            HOT_KEYS + world.chance.randrange(self._cold_keys)
            if is_cold
            else world.chance.randrange(HOT_KEYS)
        )
        if partition is not None:
            key += (partition - key) % PARTITIONS
        write = KeyedWrite(
            f"key-{key}".encode(),
            len(self._writes),
            key % PARTITIONS,
            world.chance.random() < TOMBSTONES,
            writer="keyed" if partition is None else "keyed-transactor",
        )
        self._writes.append(write)
        return write

    async def _transact(self, world: World) -> None:
        cluster = await world.open("keyed-transactor")
        while not world.is_over():
            rows: list[KeyedWrite] = []
            with suppress(KafkaError, ClusterUnreachable):
                await self._one_transaction(world, cluster, rows)
            await world.pause(4 * PAUSE_S)

    async def _one_transaction(self, world: World, cluster: ClusterClient, rows: list[KeyedWrite]) -> None:
        """A few keys of one partition, in one batch or in several, committed or aborted."""
        chance = world.chance
        partition = chance.randrange(PARTITIONS)
        commit = chance.random() < COMMITS
        txn = await cluster.run(
            transaction_steps.begin(cluster.state, "keyed-transactor", TRANSACTION_TIMEOUT_MS)
        )
        await cluster.run(
            transaction_steps.add_partitions(cluster.state, txn, [TopicPartition(TOPIC, partition)])
        )
        batches = Batches(cluster, TOPIC, ALL_REPLICAS, world.clock.now_ms)
        batches.identify(txn.producer_id, txn.epoch)
        for _ in range(chance.randint(1, 3)):
            batch = [self._draw(world, partition) for _ in range(chance.randint(1, ROWS_MAX))]
            for each in batch:
                each.is_undecided = True
            rows += batch
            offset = await batches.write_rows(
                [_cells(each) for each in batch], partition, txn.transactional_id
            )
            if offset >= 0:
                for index, each in enumerate(batch):
                    each.offset = offset + index
            await world.pause(PAUSE_S)
        await cluster.run(transaction_steps.end(cluster.state, txn, commit=commit))
        for each in rows:
            each.is_undecided = False
            each.is_aborted = not commit

    async def _move(self, world: World) -> None:
        """Between the log directories of a broker."""
        cluster = await world.open("keyed-mover")
        while not world.is_over():
            await world.pause(MOVE_PAUSE_S)
            with suppress(KafkaError, ClusterUnreachable):
                await change_directory(world, cluster, TOPIC, world.chance.randrange(PARTITIONS))

    async def _change_policy(self, world: World) -> None:
        cluster = await world.open("policy")
        while not world.is_over():
            for policy in ("delete", "compact"):
                await world.pause(POLICY_PAUSE_S)
                with suppress(KafkaError, ClusterUnreachable):
                    await TopicAdmin(cluster).alter_configs(
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
                            _kept(each.offset, each.key, each.value) for each in iterate_records(batch)
                        ]
                self._copies.append(copy)
        if stage.settings:
            await self._read(await stage.world("compaction-look", History()).open("compaction-look"))

    async def _read(self, cluster: ClusterClient) -> None:
        """As a reader of committed records gets it, once every transaction is decided."""
        numbers = range(PARTITIONS)
        ends = await list_offsets(cluster, TOPIC, numbers, LATEST)
        while await list_offsets(cluster, TOPIC, numbers, LATEST, isolation_level=COMMITTED_ONLY) != ends:
            await asyncio.sleep(1.0)
            ends = await list_offsets(cluster, TOPIC, numbers, LATEST)
        self._visible = [Copy(VISIBLE, number) for number in numbers]
        async with Consumer(cluster, TOPIC, dict.fromkeys(numbers, 0), read_committed=True) as consumer:
            while any(consumer.positions[number] < ends[number] for number in numbers):
                for number, record in await consumer.poll():
                    self._visible[number].records.append(_kept(record.offset, record.key, record.value))

    def complaints(self) -> list[str]:
        found: list[str] = []
        for partition in range(PARTITIONS):
            copies = [copy for copy in self._copies if copy.partition == partition]
            writes = [each for each in self._writes if each.partition == partition]
            if not copies:
                found.append(f"lost log: nobody has {TOPIC}-{partition}")
            for copy in copies:
                found += complaints_of(copy, writes, self._expiry)
            for copy in self._visible:
                if copy.partition == partition:
                    found += aborted_in(copy, writes)
                    found += complaints_of(copy, writes, self._expiry)
        return found

    @property
    def _expiry(self) -> str:
        if not self._is_short:
            return NEVER
        return GOES if self._replicas == 1 else MAY_BE_MISSED


def aborted_in(copy: Copy, writes: list[KeyedWrite]) -> Iterator[str]:
    aborted = {each.number for each in writes if each.is_aborted}
    for record in copy.records:
        if record.number in aborted:
            yield f"aborted read: {copy} shows {record}"


def complaints_of(copy: Copy, writes: list[KeyedWrite], expiry: str = NEVER) -> Iterator[str]:
    """`expiry` says what becomes of tombstones that are old enough."""
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
        if former is not None and _is_older(record, former, by_number):
            yield f"compacted out of order: {copy} has {record} after {former}"
        if record.number is not None and by_number[record.number].offset not in (None, record.offset):
            yield f"compacted elsewhere: {copy} has {record}, acknowledged at {by_number[record.number]}"
        if record.number is None or not by_number[record.number].is_aborted:
            latest[record.key] = record
    yield from lost_keys(copy, writes, latest, expiry)


def lost_keys(copy: Copy, writes: list[KeyedWrite], latest: dict[bytes, Kept], expiry: str) -> Iterator[str]:
    for key in sorted({each.key for each in writes}):
        promised = [each for each in writes if each.key == key and each.is_promised]
        if promised:
            last = max(promised, key=lambda each: each.offset or 0)
            kept = latest.get(key)
            if last.is_tombstone and (
                expiry == MAY_BE_MISSED or (expiry == GOES and (kept is None or kept.number is None))
            ):
                continue
            if kept is None or (last.offset is not None and kept.offset < last.offset):
                yield f"compacted away: of {key!r} {copy} has {kept}, and {last} was acknowledged"


def _kept(offset: int, key: Buffer | None, value: Buffer | None) -> Kept:
    return Kept(offset, bytes(key or b""), None if value is None else int(bytes(value)))


def _cells(write: KeyedWrite) -> tuple[bytes, bytes | None]:
    return write.key, None if write.is_tombstone else str(write.number).encode()


def _is_older(record: Kept, former: Kept, by_number: dict[int, KeyedWrite]) -> bool:
    """Of two records of one writer, which writes them by their numbers."""
    if record.number is None or former.number is None or record.number >= former.number:
        return False
    return by_number[record.number].writer == by_number[former.number].writer


def _row(write: KeyedWrite) -> tuple[bytes, int | None]:
    return write.key, None if write.is_tombstone else write.number
