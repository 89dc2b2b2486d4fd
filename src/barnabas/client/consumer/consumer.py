"""Consumer: records of topics, as a member of a group or with partitions assigned by hand.

    async with Consumer("127.0.0.1:9092", group="billing", topics=["orders"]) as consumer:
        async for record in consumer:
            ...

Heartbeats, fetches and metadata run in the background. Rebalances take effect when the application asks for
its next record: then it is done with those before, so they are committed first. Nothing beyond what was
handed out is ever committed. When the block ends with an error, the record in hand is not committed either.

A consumer belongs to one task at a time. `close` leaves no task and no socket.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from barnabas.client.aio.connections import Connect, connect_by_socket
from barnabas.client.config.settings import ConsumerSettings
from barnabas.client.consumer.arrow_decoding import ARROW_BYTES, arrow_decoder
from barnabas.client.consumer.core.handing_out import BatchesOfPartition
from barnabas.client.consumer.core.positions import Need
from barnabas.client.consumer.core.reset_strategy import TO_EARLIEST, TO_LATEST
from barnabas.client.consumer.engine import CLOSE_TIMEOUT_MS, ConsumerEngine
from barnabas.client.consumer.listener import RebalanceListener
from barnabas.client.consumer.process_source import LetterWriter, ProcessSource
from barnabas.client.core.client_errors import IllegalState
from barnabas.client.core.offsets import CommittedOffset, GroupMetadata, OffsetAndTime
from barnabas.client.extensions.interceptors import ConsumerInterceptor
from barnabas.client.extensions.records import Key, Record, Value
from barnabas.client.extensions.serializers import DeserializeWith
from barnabas.client.processing.core.lanes import Order
from barnabas.client.processing.core.retry_policy import NO_RETRY, Retry
from barnabas.client.processing.processing import DRAIN_MS, Processing, ProcessOptions
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidGroupId
from barnabas.core.ids import Randomness, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class Consumer(Generic[Key, Value]):
    def __init__(
        self,
        config: str | Sequence[str] | Mapping[str, Any] | None = None,
        /,
        *,
        group: str | None = None,
        topics: Collection[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        key_deserializer: DeserializeWith[Key] | None = None,
        value_deserializer: DeserializeWith[Value] | None = None,
        file: str | Path | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        connect: Connect = connect_by_socket,
        **keywords: Any,
    ) -> None:
        """`config` has the bootstrap servers, or Kafka's properties. Settings come as keywords too, with `_`
        for each dot, from a properties `file`, or from variables (`environment=os.environ`). `group` is
        `group.id`. The types of key and value follow the deserializers that are functions or objects.
        """
        if group is not None:
            keywords["group_id"] = group
        if key_deserializer is not None:
            keywords["key_deserializer"] = key_deserializer
        if value_deserializer is not None:
            keywords["value_deserializer"] = value_deserializer
        self._engine = ConsumerEngine(
            ConsumerSettings.given(config, file=file, environment=environment, keywords=keywords),
            listener=listener,
            interceptors=interceptors,
            clock=clock,
            randomness=randomness,
            connect=connect,
        )
        self._hand = self._engine.hand
        self._batch_records = self._engine.settings.max_poll_records
        self._timeout_ms = self._engine.settings.default_api_timeout_ms
        self._topics, self._pattern = topics, pattern

    # --- life ---

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._hand.roll_back()
        await self.close()

    async def start(self) -> None:
        """Connect, and subscribe to the topics of the constructor."""
        await self._engine.start()
        try:
            if self._pattern is not None:
                await self.subscribe(pattern=self._pattern)
            elif self._topics:
                await self.subscribe(self._topics)
        except BaseException:
            await self.close(timeout_ms=0)
            raise

    async def close(self, *, timeout_ms: float = CLOSE_TIMEOUT_MS) -> None:
        """Commit what was handed out, leave the group, and close all connections, within `timeout_ms`."""
        await self._engine.close(timeout_ms)

    # --- subscription ---

    async def subscribe(
        self,
        topics: Collection[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all whose name matches the pattern. The group divides their partitions."""
        await self._engine.subscribe(topics, pattern=pattern, listener=listener)

    async def unsubscribe(self) -> None:
        """Give all partitions up, and leave the group."""
        await self._engine.unsubscribe()

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without the group's help."""
        await self._engine.assign(partitions)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """Partitions that this consumer reads."""
        return self._engine.positions.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """Topics that this consumer is subscribed to."""
        return self._engine.subscription.topics

    def group_metadata(self) -> GroupMetadata:
        """Identity in the group, for `send_offsets_to_transaction`."""
        if self._engine.settings.group_id is None:
            raise InvalidGroupId("this consumer has no group")
        member = self._engine.member
        if member is None:
            return GroupMetadata(self._engine.settings.group_id)
        return GroupMetadata(
            self._engine.settings.group_id,
            member.epoch,
            member.member_id,
            self._engine.settings.group_instance_id,
        )

    # --- records ---

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[Key, Value]:
        hand = self._hand
        index = hand.index
        if index < len(hand.slice) and not hand.attention:
            hand.index = index + 1
            return hand.slice[index]
        while True:
            await self._engine.attend()
            while hand.next_slice(self._batch_records):
                if hand.slice:
                    self._engine.fetching.pump()
                    hand.index = 1
                    return hand.slice[0]
                hand.index = 0  # interceptors left nothing of it
            self._engine.fetching.pump()  # the last chunk is done: its broker may be asked again
            await self._engine.wait(math.inf)

    async def get_one(self) -> Record[Key, Value]:
        """The next record."""
        return await self.__anext__()

    async def poll(
        self, *, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[Record[Key, Value]]:
        """Records of any partitions, in order within each. None when `timeout_ms` passes without any."""
        deadline_ms = self._engine.clock.monotonic_ms() + timeout_ms
        while True:
            await self._engine.attend()
            records = self._hand.take(max_records or self._batch_records)
            self._engine.fetching.pump()
            left_ms = deadline_ms - self._engine.clock.monotonic_ms()
            if records or left_ms <= 0:
                return records
            await self._engine.wait(left_ms)

    async def get_many(
        self, *, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record[Key, Value]]]:
        """Records by partition. None when `timeout_ms` passes without any."""
        found: dict[TopicPartition, list[Record[Key, Value]]] = {}
        for record in await self.poll(timeout_ms=timeout_ms, max_records=max_records):
            found.setdefault(record.topic_partition, []).append(record)
        return found

    async def arrow(
        self,
        *,
        columns: Sequence[str] | None = None,
        max_bytes: int = ARROW_BYTES,
        timeout_ms: float = math.inf,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Records as Arrow batches, each of one partition, of about `max_bytes`. It ends after `timeout_ms`
        without records. Needs the extra `tables`.
        """
        decode = arrow_decoder(columns)
        deadline_ms = self._engine.clock.monotonic_ms() + timeout_ms
        while True:
            await self._engine.attend()
            taken = self._hand.take_batches(max_bytes)
            self._engine.fetching.pump()
            if taken is not None:
                for batch in decode(taken):
                    yield batch
                deadline_ms = self._engine.clock.monotonic_ms() + timeout_ms
                continue
            left_ms = deadline_ms - self._engine.clock.monotonic_ms()
            if left_ms <= 0:
                return
            await self._engine.wait(left_ms)

    async def take_batches(self, max_bytes: int, timeout_ms: float) -> BatchesOfPartition | None:
        """Undecoded batches of one partition. None when `timeout_ms` passes without any."""
        deadline_ms = self._engine.clock.monotonic_ms() + timeout_ms
        while True:
            await self._engine.attend()
            taken = self._hand.take_batches(max_bytes)
            self._engine.fetching.pump()
            left_ms = deadline_ms - self._engine.clock.monotonic_ms()
            if taken is not None or left_ms <= 0:
                return taken
            await self._engine.wait(left_ms)

    @property
    def clock(self) -> Clock:
        return self._engine.clock

    @property
    def settings(self) -> ConsumerSettings:
        return self._engine.settings

    async def process(
        self,
        handler: Callable[[Record[Key, Value]], object],
        *,
        concurrency: int = 64,
        order: Order = "key",
        retry: Retry | int = NO_RETRY,
        dead_letters: str | None = None,
        stop: asyncio.Event | None = None,
        drain_ms: float = DRAIN_MS,
    ) -> None:
        """Give each record to `handler`, many at a time, and acknowledge each individually.

        Records of one key (or partition) are handled in order. A record whose handler raises is tried again
        by `retry`, then written to the topic `dead_letters`; without one, `process` raises the error. It
        returns after `stop` is set. A restart repeats no record that was acknowledged.
        """
        engine = self._engine
        engine.check_open()
        if engine.settings.group_id is None:
            raise InvalidGroupId("process needs a group: set group.id")
        if engine.owner is not None:
            raise IllegalState("this consumer is processing already")
        options = ProcessOptions(
            concurrency=concurrency,
            order=order,
            retry=Retry(retry) if isinstance(retry, int) else retry,
            dead_letters=dead_letters,
            commit_interval_ms=engine.settings.auto_commit_interval_ms,
            drain_ms=drain_ms,
            name=engine.settings.group_id,
        )
        letters = LetterWriter(engine)
        source = ProcessSource(engine)
        processing = Processing(source, handler, options, engine.clock, letters.publish)
        self._hand.abandon()
        engine.owner = processing
        try:
            await engine.settle_auto_commit(self._timeout_ms)
            await processing.run(stop)
        finally:
            engine.owner = None
            source.hold(())
            source.rewind(processing.offsets())
            await letters.close()

    # --- commits ---

    async def commit(
        self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Commit these offsets: the next ones to read. Without any, those after the records handed out.

        `CommitFailed` when the group has given the partitions to another member.
        """
        self._engine.check_open(in_listener=True)
        if offsets is None:
            committed = await self._engine.commit_positions(self._timeout_ms)
            self._hand.committed(committed)
            return committed
        wanted = {
            TopicPartition(*at): each if isinstance(each, CommittedOffset) else CommittedOffset(each)
            for at, each in offsets.items()
        }
        await self._engine.commit(wanted, self._timeout_ms)
        self._hand.committed(wanted)
        return wanted

    async def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Committed offsets of the group; None where there is none."""
        self._engine.check_open(in_listener=True)
        if self._engine.commits is None:
            raise InvalidGroupId("committed offsets belong to a group: set group.id")
        wanted = [TopicPartition(*at) for at in (self.assignment if partitions is None else partitions)]
        return await self._engine.commits.fetch(wanted, self._timeout_ms)

    # --- positions ---

    def positions(self) -> dict[TopicPartition, CommittedOffset]:
        """Offsets after the records handed out, for `send_offsets_to_transaction`."""
        return self._engine.offsets()

    async def position(self, at: TopicPartition) -> int:
        """Offset of the next record of a partition. Waits until it is known."""
        self._engine.check_open(in_listener=True)
        state = self._engine.positions.of(TopicPartition(*at))
        self._hand.settle()
        deadline_ms = self._engine.clock.monotonic_ms() + self._timeout_ms
        while not state.has_position and self._engine.clock.monotonic_ms() < deadline_ms:
            self._engine.check_open(in_listener=True)
            self._engine.check_working()
            if self._engine.updates.errors:
                raise self._engine.updates.errors.take()
            self._engine.updates.wake()
            await asyncio.sleep(0.005)
        if not state.has_position:
            raise IllegalState(f"the position of {at} is not known yet")
        return state.position

    def seek(self, at: TopicPartition, offset: int) -> None:
        """Continue with this offset."""
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        self._move(at).seek(offset)
        self._engine.fetching.pump()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        for at in partitions or self.assignment:
            self._move(at).reset(TO_EARLIEST)
        self._engine.updates.wake()

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        for at in partitions or self.assignment:
            self._move(at).reset(TO_LATEST)
        self._engine.updates.wake()

    async def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Continue with the first record at or after a time; where there is none, at the end."""
        found = await self.offsets_for_times(dict.fromkeys(partitions or self.assignment, timestamp_ms))
        for at, first in found.items():
            if first is None:
                await self.seek_to_end(at)
            else:
                self.seek(at, first.offset)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions, until `resume`. The group keeps them."""
        for at in partitions:
            self._move(at).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        for at in partitions:
            self._move(at).is_paused = False
        self._engine.look()
        self._engine.fetching.pump()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(state.at for state in self._engine.positions if state.is_paused)

    def _move(self, at: TopicPartition) -> Any:
        self._engine.check_open()
        self._hand.abandon()
        self._hand.attention = True
        return self._engine.positions.of(TopicPartition(*at))

    async def lag(self, at: TopicPartition) -> int:
        """Records between the position and the end of a partition."""
        position = await self.position(at)
        state = self._engine.positions.of(TopicPartition(*at))
        end = state.high_watermark
        if self._engine.settings.isolation_level == "read_committed":
            end = state.last_stable_offset
        if end < position:
            end = (await self.end_offsets([at]))[TopicPartition(*at)]
        return max(0, end - position)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._engine.check_open()
        return await self._engine.queries.bounds(partitions, TO_EARLIEST, self._timeout_ms)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Ends of partitions; with read_committed the end of what is stable."""
        self._engine.check_open()
        return await self._engine.queries.bounds(partitions, TO_LATEST, self._timeout_ms)

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTime | None]:
        """First record at or after a time, in milliseconds; None where there is none."""
        self._engine.check_open()
        return await self._engine.queries.at_times(times, self._timeout_ms)

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """Partitions of a topic."""
        self._engine.check_open()
        found = await self._engine.cluster.topic(topic, unknown_timeout_ms=0)
        return [TopicPartition(topic, each.index) for each in found.partitions]

    async def topics(self) -> set[str]:
        """Names of all topics that this client may see."""
        self._engine.check_open()
        answer = await self._engine.cluster.refresh(None)
        return {row.name for row in answer.topics if row.name and not row.error_code}

    @property
    def is_positioned(self) -> bool:
        """True when every assigned partition has a position."""
        return all(state.need is Need.NOTHING for state in self._engine.positions)
