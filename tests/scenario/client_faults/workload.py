"""Writers, copiers and handlers of a topic, all of them clients of the library, and the judgement at the end.

    writer -> source -> copiers (transactions, one group) -> target
                     -> handlers (`process`, another group) -> `Handled`

The writer numbers the records of each partition. Every number is in the source once and in order; in the
target too, as a reader of committed records sees it; each record is handled, those of a key in order.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError
from confluent_kafka import Consumer as JudgingConsumer
from confluent_kafka import TopicPartition as JudgedPartition

from barnabas.client import (
    ClusterUnreachable,
    CommitFailed,
    Consumer,
    IllegalState,
    Producer,
    RebalanceListener,
    Record,
    TransactionAborted,
)
from barnabas.client import KafkaError as RefusedError
from barnabas.client.producer.delivery import Delivery
from barnabas.core.ids import TopicPartition
from tests.scenario.client_faults.links import Links

PARTITIONS = 3
KEYS = 4
"""Keys of each partition."""
REQUEST_TIMEOUT_MS = 3_000
SESSION_TIMEOUT_MS = 10_000
PATIENCE_MS = 10_000
"""Of a member that handles records: its last commit and its farewell wait no longer for a coordinator."""
WAIT_MAX_S = 120.0
"""No call of a client takes longer: above every timeout that the clients have, and a busy machine."""
REFUSALS = (RefusedError, ClusterUnreachable, CommitFailed, IllegalState, TransactionAborted)
_names = itertools.count()
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Handled:
    """Records in the order in which handlers finished them, and those that may have been handled twice."""

    values: defaultdict[tuple[int, bytes], list[int]] = field(default_factory=lambda: defaultdict(list))
    by: defaultdict[tuple[int, int], list[str]] = field(default_factory=lambda: defaultdict(list))
    """Members that handled a record, by partition and number, with their time."""
    may_repeat: set[tuple[int, int]] = field(default_factory=set)


class Workload:
    def __init__(self, bootstrap: str, links: Links, protocol: str) -> None:
        run = next(_names)
        self.source, self.target = f"source-{run}", f"target-{run}"
        self._run = run
        self._bootstrap = bootstrap
        self._links = links
        self._protocol = protocol
        self._stop_writing = asyncio.Event()
        self._stop = asyncio.Event()
        self.deliveries: list[list[Delivery]] = [[] for _ in range(PARTITIONS)]
        self.handled = Handled()
        self.met: list[BaseException] = []
        """Errors after which a client began again."""

    def producer(self, links: Links | None = None, **settings: Any) -> Producer:
        quick: dict[str, Any] = {
            "linger_ms": 2,
            "batch_size": 1_000,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
        }
        return Producer(self._bootstrap, connect=(links or self._links).connect, **quick, **settings)

    def consumer(self, group: str, links: Links | None = None, **settings: Any) -> Consumer:
        return Consumer(
            self._bootstrap,
            connect=(links or self._links).connect,
            group=f"{group}-{self._run}",
            group_protocol=self._protocol,
            auto_offset_reset="earliest",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=500,
            auto_commit_interval_ms=200,
            **settings,
        )

    # --- the three kinds of clients ---

    async def write(self) -> None:
        async with self.producer() as producer:
            for number in itertools.count():
                if self._stop_writing.is_set():
                    break
                for partition in range(PARTITIONS):
                    async with asyncio.timeout(WAIT_MAX_S):
                        delivery = await producer.send(
                            self.source, b"%d" % number, key=b"%d" % (number % KEYS), partition=partition
                        )
                    self.deliveries[partition].append(delivery)
                await asyncio.sleep(0.01)
            async with asyncio.timeout(WAIT_MAX_S):
                await producer.flush()

    async def copy(self, member: int) -> None:
        while not self._stop.is_set():
            with self._beginning_again():
                async with (
                    self.producer(transactional_id=f"copier-{self._run}-{member}") as producer,
                    self.consumer(
                        "copiers", topics=[self.source], enable_auto_commit=False, max_poll_records=50
                    ) as consumer,
                ):
                    while not self._stop.is_set():
                        async with asyncio.timeout(WAIT_MAX_S):
                            records = await consumer.poll(timeout_ms=100)
                            if records:
                                await self._copy(producer, consumer, records)

    async def _copy(self, producer: Producer, consumer: Consumer, records: list[Record[Any, Any]]) -> None:
        async with producer.transaction():
            for record in records:
                await producer.send(self.target, record.value, partition=record.partition)
            ends = {record.topic_partition: record.offset + 1 for record in records}
            await producer.send_offsets_to_transaction(ends, consumer.group_metadata())

    async def handle(self, links: Links | None = None, stop: asyncio.Event | None = None) -> None:
        """A member that handles records by `process`, until the end, `stop` or a cancellation. One with links
        of its own takes no time to close: it dies.
        """
        handled = self.handled
        mine: list[tuple[int, int]] = []
        name = f"member {next(_names)}"

        class Lost(RebalanceListener):
            def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
                logger.info("%s loses %s", name, partitions)
                handled.may_repeat.update(mine)

            def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
                logger.info("%s gets %s", name, partitions)

            def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
                logger.info("%s gives up %s", name, partitions)

        async def handle(record: Record[Any, Any]) -> None:
            await asyncio.sleep(0.001)
            number = int(record.value)
            handled.values[record.partition, record.key].append(number)
            handled.by[record.partition, number].append(f"{name} {asyncio.get_running_loop().time():.3f}")
            mine.append((record.partition, number))

        end = stop or self._stop
        while not end.is_set():
            with self._beginning_again():
                consumer = self.consumer("handlers", links, default_api_timeout_ms=PATIENCE_MS)
                try:
                    await consumer.start()
                    await consumer.subscribe([self.source], listener=Lost())
                    await consumer.process(handle, concurrency=16, stop=end)
                except BaseException:
                    handled.may_repeat.update(mine)
                    raise
                finally:
                    await consumer.close(timeout_ms=PATIENCE_MS if links is None else 0)

    @contextmanager
    def _beginning_again(self) -> Iterator[None]:
        """Keep what a client may raise under faults."""
        try:
            yield
        except REFUSALS as error:
            self.met.append(error)

    # --- the run ---

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All clients at work. At the end everything written is copied and handled, and they are closed."""
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(self.write())
            for member in range(2):
                tasks.create_task(self.copy(member))
                tasks.create_task(self.handle())
            yield
            self._stop_writing.set()
            await writing
            await self._until_all_is_handled()
            await self._until_all_is_copied()
            self._stop.set()

    async def _until_all_is_handled(self) -> None:
        async def handled() -> int:
            return sum(
                len({number for key in range(KEYS) for number in self.handled.values[partition, b"%d" % key]})
                for partition in range(PARTITIONS)
            )

        await self._while_it_grows(handled)

    async def _until_all_is_copied(self) -> None:
        async def copied() -> int:
            return sum(map(len, await asyncio.to_thread(self.read, self.target)))

        await self._while_it_grows(copied)

    async def _while_it_grows(self, count: Callable[[], Awaitable[int]]) -> None:
        """Wait until everything is counted. A busy machine is slow; only clients that stand still fail."""
        expected = sum(map(len, self.deliveries))
        seen = -1
        while seen < expected:
            async with asyncio.timeout(WAIT_MAX_S):
                while (found := await count()) <= seen:  # noqa: ASYNC110 - the clients go on by themselves
                    await asyncio.sleep(0.2)
            seen = found

    # --- the judgement ---

    def read(self, topic: str) -> list[list[int]]:
        """Committed records of each partition, as librdkafka reads them."""
        judge = JudgingConsumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "judge",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        found: list[list[int]] = [[] for _ in range(PARTITIONS)]
        try:
            judge.assign([JudgedPartition(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
            left = set(range(PARTITIONS))
            while left:
                for message in judge.consume(1_000, 0.2):
                    error = message.error()
                    if error is None:
                        found[message.partition() or 0].append(int(message.value() or b""))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard(message.partition())
        finally:
            judge.close()
        return found

    def judge(self) -> None:
        expected = [list(range(len(each))) for each in self.deliveries]
        for each in self.deliveries:
            assert [delivery.result().offset for delivery in each] == list(range(len(each)))
        assert self.read(self.source) == expected, "the source"
        assert self.read(self.target) == expected, "the target"
        repeated = {at for at, members in self.handled.by.items() if len(members) > 1}
        for (partition, key), numbers in self.handled.values.items():
            first = list(dict.fromkeys(numbers))
            assert first == sorted(first), f"key {key!r} of partition {partition} was handled out of order"
        wrongly = {at: self.handled.by[at] for at in sorted(repeated - self.handled.may_repeat)}
        assert not wrongly, f"handled twice by members that lost no partition: {wrongly}, {self.met}"


def client_tasks() -> list[str]:
    coroutines = [str(task.get_coro()) for task in asyncio.all_tasks()]
    return [each for each in coroutines if "barnabas/client" in each]
