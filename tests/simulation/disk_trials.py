"""Trials of bad disks: an unreadable log, changed bits of derived files, a store that cannot write.

Like `trials`, each comes last, when all is mended, and may break things by itself.
"""

from __future__ import annotations

import asyncio
import errno
import random
from contextlib import suppress

from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.core.transaction_steps import add_partitions, begin, end, idempotent_producer
from barnabas.core.errors import KafkaError, TopicAlreadyExists
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType
from barnabas.storage.files.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from barnabas.storage.files.names import LEADER_EPOCHS
from barnabas.storage.segment.transaction_index import ENTRY
from tests.chaos.checker import complaints_about
from tests.chaos.history import ALL_REPLICAS, History, Outcome, Value, Write
from tests.simulation.cast import Part, Stage, Topic
from tests.simulation.clients import TRANSACTION_TIMEOUT_MS, Batches, World
from tests.simulation.final_reading import COMMITTED_ONLY, LATEST, read_topic
from tests.simulation.machine import COORDINATION, DIRECTORIES, Machine
from tests.simulation.storage_trials import SYNC_EACH, write_some
from tests.simulation.trials import SERVED_WITHIN_S, leader_of, until
from tests.support.plain_consumer import Consumer, list_offsets

PRODUCER_ID_AT = 2
"""In an entry of a transaction index, behind the version."""
CHECKPOINTED_S = 7.0
"""Longer than `log.flush.offset.checkpoint.interval.ms` of the machines: indexes below are not made again."""


class Unreadable(Part):
    """The log of a topic cannot be read on its leader, while its follower has everything. The follower leads
    soon, and readers get every record."""

    TOPIC = "unreadable"
    RECORDS = 5

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()
        self._unserved: list[str] = []

    def topics(self) -> dict[str, Topic]:
        return {self.TOPIC: Topic(1, replicas=2, configs={"min.insync.replicas": "1"})}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, self._history)
        cluster = await world.open(self.TOPIC)
        await write_some(world, cluster, self._history, self.TOPIC, self.RECORDS)
        leader = leader_of(stage, self.TOPIC)
        leader.make_unreadable(f"{self.TOPIC}-0")
        reading = asyncio.create_task(self._read(cluster))
        done, _ = await asyncio.wait((reading,), timeout=SERVED_WITHIN_S)
        if not done:
            reading.cancel()
            self._unserved.append(
                f"not served: {self.TOPIC}-0 cannot be read on {leader}, and no other broker serves it within"
                f" {SERVED_WITHIN_S:.0f} s"
            )
        leader.mend_disk()
        await stage.in_sync()
        await read_topic(cluster, self.TOPIC, 1, self._history)

    async def _read(self, cluster: ClusterClient) -> None:
        position = 0
        while position < self.RECORDS:
            with suppress(KafkaError, ClusterUnreachable):
                async with Consumer(cluster, self.TOPIC, {0: position}) as consumer:
                    while consumer.positions[0] < self.RECORDS:
                        await consumer.poll()
                        position = consumer.positions[0]

    def complaints(self) -> list[str]:
        return self._unserved + complaints_about(self._history)


class Bits(Part):
    """A bit changes in a file that a broker derives from a log, or in a checkpoint, while the broker is away.
    Searches by offset and by time, the memory of producers, aborted transactions and every record are as
    before."""

    TOPIC, ABORTED = "bits", "bits-aborted"
    TRANSACTIONS = 14
    SHARED = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS)
    """Checkpoints of all logs of a directory."""
    KINDS = (".index", ".timeindex", ".snapshot", LEADER_EPOCHS, *SHARED)
    ENTRY_BYTES = {".index": (8, 3), ".timeindex": (12, 11)}  # noqa: RUF012 - never changed
    """Size of an entry, and position of the low byte of its offset."""
    RECORDS = 100
    """Some forty of them in a segment: the bit that changes is worth sixteen."""
    ROUNDS = 11
    SEARCHES = 16
    BIT = 0x10
    """The one that changes."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._history = History()
        self._times: list[int] = []
        self._aborted: set[bytes] = set()
        self._complaints: list[str] = []

    def topics(self) -> dict[str, Topic]:
        configs = {
            **SYNC_EACH,
            "min.insync.replicas": "1",
            "segment.bytes": "6000",
            "index.interval.bytes": "0",
            "message.timestamp.type": "CreateTime",
            "compression.type": "producer",
        }
        aborted = {**configs, "segment.bytes": "700"}
        return {
            self.TOPIC: Topic(1, replicas=1, configs=configs),
            self.ABORTED: Topic(1, replicas=1, configs=aborted),
        }

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, self._history)
        cluster = await world.open(self.TOPIC)
        for number in range(self.TRANSACTIONS):
            await self._transact(world, cluster, number)
        batches = Batches(cluster, self.TOPIC, ALL_REPLICAS, world.clock.now_ms)
        batches.identify(*await cluster.run(idempotent_producer(cluster.state)))
        # All that is known of this one is in the snapshots, once its record is in a closed segment.
        idle = Batches(cluster, self.TOPIC, ALL_REPLICAS, world.clock.now_ms)
        idle.identify(*await cluster.run(idempotent_producer(cluster.state)))
        await self._write(world, idle)
        for _ in range(self.RECORDS):
            await self._write(world, batches)
        await asyncio.sleep(CHECKPOINTED_S)
        more = (self.chance.choice(self.KINDS[:2]) for _ in range(self.ROUNDS - len(self.KINDS)))
        kinds = [*self.KINDS, *more]
        for kind in kinds:
            machine = leader_of(stage, self.TOPIC)
            machine.kill()
            offsets = self._change_a_bit(machine, kind, idle.producer_id)
            machine.start()
            await stage.in_sync()
            await self._search(cluster, kind, offsets)
            for each in (batches, idle):
                await each.again(0)
            await self._write(world, batches)
        await self._lose_track_of_aborted(stage, cluster)
        await read_topic(cluster, self.TOPIC, 1, self._history)

    async def _transact(self, world: World, cluster: ClusterClient, number: int) -> None:
        """Two of three abort."""
        txn = await cluster.run(begin(cluster.state, f"{self.TOPIC}-{number % 3}", TRANSACTION_TIMEOUT_MS))
        await cluster.run(add_partitions(cluster.state, txn, [TopicPartition(self.ABORTED, 0)]))
        batches = Batches(cluster, self.ABORTED, ALL_REPLICAS, world.clock.now_ms)
        batches.identify(txn.producer_id, txn.epoch)
        value = b"%d" % number
        await batches.write_rows([(None, value)], 0, txn.transactional_id)
        await cluster.run(end(cluster.state, txn, commit=number % 3 == 0))
        if number % 3:
            self._aborted.add(value)

    async def _lose_track_of_aborted(self, stage: Stage, cluster: ClusterClient) -> None:
        """A bit of a producer id in a transaction index changes: the index names another transaction."""
        machine = leader_of(stage, self.ABORTED)
        machine.kill()
        log = self._log_of(machine, self.ABORTED)
        found = [each for each in self._files_of(machine, log, ".txnindex") if machine.files.read(each)]
        path = self.chance.choice(found)
        entries = len(machine.files.read(path)) // ENTRY.size
        machine.change_bit(path, self.chance.randrange(entries) * ENTRY.size + PRODUCER_ID_AT + 7)
        machine.start()
        await stage.in_sync()
        ends = await list_offsets(cluster, self.ABORTED, [0], LATEST, isolation_level=COMMITTED_ONLY)
        async with Consumer(cluster, self.ABORTED, {0: 0}, read_committed=True) as consumer:
            while consumer.positions[0] < ends[0]:
                self._complaints += [
                    f"aborted read: {self.ABORTED}-0 shows {bytes(record.value or b'')!r} at {record.offset}"
                    for _, record in await consumer.poll()
                    if bytes(record.value or b"") in self._aborted
                ]

    def _log_of(self, machine: Machine, topic: str) -> str:
        (home,) = (each for each in DIRECTORIES if machine.files.exists(f"{each}/{topic}-0"))
        return f"{home}/{topic}-0"

    def _files_of(self, machine: Machine, log: str, kind: str) -> list[str]:
        return sorted(
            f"{log}/{each.name}"
            for each in machine.files.list(log)
            if each.size_bytes and each.name.endswith(kind)
        )

    async def _write(self, world: World, batches: Batches) -> None:
        write = Write(Value(self.TOPIC, len(self._history.writes)), self.TOPIC, 0)
        self._history.writes.append(write)
        self._times.append(world.clock.now_ms())
        write.offset = await batches.write(write.value, 0)
        write.outcome = Outcome.ACKNOWLEDGED
        await asyncio.sleep(0.05)

    def _change_a_bit(self, machine: Machine, kind: str, producer_id: int) -> list[int]:
        """In a file of this kind: of the topic's log, or of the checkpoint of all logs in its directory the
        line of the topic. Returns the offsets to search for: those of the segment whose index has changed."""
        files, count = machine.files, len(self._history.writes)
        log = self._log_of(machine, self.TOPIC)
        offsets = self.chance.sample(range(count), min(count, self.SEARCHES))
        if kind in self.SHARED:
            path = f"{log.rpartition('/')[0]}/{kind}"
            content = files.read(path) if files.exists(path) else b""
            begins = content.find(f"{self.TOPIC} 0 ".encode())
            if begins < 0:
                return offsets
            place = self.chance.randrange(begins, content.index(b"\n", begins))
        else:
            found = self._files_of(machine, log, kind)
            if not found:
                return offsets
            path = found[-1] if kind == ".snapshot" else self.chance.choice(found)
            content = files.read(path)
            place = self.chance.randrange(len(content))
            if kind in self.ENTRY_BYTES:
                starts = [int(each.rpartition("/")[2][:20]) for each in found if each >= path]
                offsets = list(range(starts[0], starts[1] if starts[1:] else count))
            if kind in self.ENTRY_BYTES and self.chance.random() < 0.8:
                # The low byte of an offset: an entry that is plausible by itself. One of an offset index that
                # names a smaller offset leads too far, and one of a time index that names a larger one.
                entry_bytes, at = self.ENTRY_BYTES[kind]
                places = range(at, len(content), entry_bytes)
                wanted = self.BIT if kind == ".index" else 0
                misleading = [each for each in places if content[each] & self.BIT == wanted]
                place = self.chance.choice(misleading or places)
            elif kind == ".snapshot" and (known_at := content.find(producer_id.to_bytes(8))) >= 0:
                place = known_at + 7  # the producer is another one
        machine.change_bit(path, place)
        return offsets

    async def _search(self, cluster: ClusterClient, kind: str, offsets: list[int]) -> None:
        for offset in offsets:
            by_time = await list_offsets(cluster, self.TOPIC, [0], self._times[offset])
            if by_time[0] != offset:
                self._complaints.append(
                    f"found wrongly: {self.TOPIC}-0 at time {self._times[offset]} is {by_time[0]}, not"
                    f" {offset}, after a bit of {kind} has changed"
                )
            async with Consumer(cluster, self.TOPIC, {0: offset}) as consumer:
                while not (records := await consumer.poll()):
                    pass
            if records[0].record.offset != offset:
                self._complaints.append(
                    f"skipped: a reader of {self.TOPIC}-0 at {offset} got {records[0].record.offset}, after a"
                    f" bit of {kind} has changed"
                )

    def complaints(self) -> list[str]:
        return self._complaints[:5] + complaints_about(self._history)


class Ledger(Part):
    """The embedded store of a broker that is killed, loses its power and has a failing disk. Everything it
    has acknowledged (topics, settings, producer ids) is there whenever its broker is back."""

    TOPIC = "ledger"
    ROUNDS = 6
    CHANGES_MAX = 12

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._topics: dict[str, str] = {}
        """Those that were acknowledged, and their `retention.ms`."""
        self._ids: set[int] = set()
        self._complaints: list[str] = []

    async def look(self, stage: Stage) -> None:
        (machine,) = stage.machines
        world = stage.world(self.TOPIC, History())
        for number in range(self.ROUNDS):
            cluster = await world.open(self.TOPIC)
            usual_s = machine.sync_s
            machine.sync_s = self.chance.choice((usual_s, 0.3))
            for _ in range(self.chance.randint(2, self.CHANGES_MAX)):
                await self._change(cluster)
            await self._break(machine, number, cluster)
            machine.sync_s = usual_s
            if not await self._is_back(machine):
                return
            await stage.in_sync()
            await self._compare(await world.open(self.TOPIC))

    async def _change(self, cluster: ClusterClient) -> None:
        producer_id, _ = await cluster.run(idempotent_producer(cluster.state))
        if producer_id in self._ids:
            self._complaints.append(f"producer id given twice: {producer_id}")
        self._ids.add(producer_id)
        value = str(100_000_000 + self.chance.randrange(1_000))
        if self._topics and self.chance.random() < 0.7:
            name = self.chance.choice(sorted(self._topics))
            change = {"retention.ms": value}
            await TopicAdmin(cluster).alter_configs(ResourceType.TOPIC, name, changes=change)
        else:
            name = f"{self.TOPIC}-{len(self._topics)}"
            with suppress(TopicAlreadyExists):
                await TopicAdmin(cluster).create_topic(
                    name, partitions=1, replication_factor=1, configs={"retention.ms": value}
                )
        self._topics[name] = value

    async def _break(self, machine: Machine, number: int, cluster: ClusterClient) -> None:
        if number % 3 == 0:
            machine.cut_power()
        elif number % 3 == 1:
            machine.kill()
        else:
            # What is asked of it now may be refused, and then fails: nothing is counted on.
            machine.fail_in_part(self.chance.choice((errno.ENOSPC, errno.EIO)), ("write",), (COORDINATION,))
            with suppress(KafkaError, ClusterUnreachable, TimeoutError):
                async with asyncio.timeout(3.0):
                    await TopicAdmin(cluster).create_topic(
                        f"refused-{number}", partitions=1, replication_factor=1, configs={}
                    )
            machine.mend_disk()
            return
        await asyncio.sleep(1.0)
        machine.start()

    async def _is_back(self, machine: Machine) -> bool:
        """Whether the broker serves changes again."""
        name = f"alive-{machine.lives}-{len(self._ids)}"
        with suppress(TimeoutError):
            async with asyncio.timeout(SERVED_WITHIN_S):
                await until(lambda: machine.is_serving)
                cluster = ClusterClient([machine.address], clock=machine.clock, randomness=self.chance)
                while True:
                    with suppress(KafkaError, ClusterUnreachable):
                        await TopicAdmin(cluster).create_topic(
                            name, partitions=1, replication_factor=1, configs={}
                        )
                        return True
                    await asyncio.sleep(0.5)
        self._complaints.append(f"not served: {machine} makes no topic within {SERVED_WITHIN_S:.0f} s")
        return False

    async def _compare(self, cluster: ClusterClient) -> None:
        listed = {topic.name for topic in await TopicAdmin(cluster).list_topics()}
        for name, value in self._topics.items():
            if name not in listed:
                self._complaints.append(f"lost topic: {name} was acknowledged and is gone")
                continue
            rows = await TopicAdmin(cluster).describe_configs(ResourceType.TOPIC, name)
            found = {row.name: row.value for row in rows}.get("retention.ms")
            if found != value:
                self._complaints.append(f"lost setting: retention.ms of {name} is {found}, and was {value}")

    def complaints(self) -> list[str]:
        return self._complaints[:5]
