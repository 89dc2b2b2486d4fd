"""Consumer as the source of `process`, and the writer of its dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.client.config.common import COMMON, INT_MAX
from barnabas.client.consumer.core.positions import PartitionState
from barnabas.client.consumer.engine import ConsumerEngine
from barnabas.client.core.offsets import CommittedOffset
from barnabas.client.extensions.records import Header, Record
from barnabas.client.producer.producer import Producer
from barnabas.core.ids import NO_EPOCH, TopicPartition

LETTER_BYTES_MAX = INT_MAX


class ProcessSource:
    def __init__(self, engine: ConsumerEngine) -> None:
        self._engine = engine
        self._starts: dict[TopicPartition, tuple[PartitionState, CommittedOffset]] = {}
        self._is_woken = False

    async def take(self, most: int, timeout_ms: float) -> list[Record[Any, Any]]:
        engine = self._engine
        deadline_ms = engine.clock.monotonic_ms() + timeout_ms
        while True:
            await engine.attend(is_owner=True)
            self._note_starts()
            records = engine.hand.take(most, raw=True)
            engine.fetching.pump()
            left_ms = deadline_ms - engine.clock.monotonic_ms()
            if records or self._is_woken or left_ms <= 0:
                self._is_woken = False
                return records
            await engine.wait(left_ms)

    def _note_starts(self) -> None:
        """Note the positions of new partitions, before a record of them is taken."""
        for state in self._engine.positions:
            known = self._starts.get(state.at)
            if state.has_position and (known is None or known[0] is not state):
                self._starts[state.at] = (state, CommittedOffset(state.position, state.metadata))

    def start_of(self, at: TopicPartition) -> CommittedOffset:
        return self._starts[at][1]

    def position_of(self, at: TopicPartition) -> int | None:
        state = self._engine.positions.get(at)
        return None if state is None or not state.has_position else state.position

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        held = set(partitions)
        for state in self._engine.positions:
            state.is_held = state.at in held

    def rewind(self, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        """Go back to the first record that is not done: a later call begins there, with the same text."""
        for at, committed in offsets.items():
            state = self._engine.positions.get(at)
            if state is not None and state.has_position:
                state.continue_at(committed.offset, NO_EPOCH, committed.metadata)

    def wake(self) -> None:
        self._is_woken = True
        self._engine.look()

    async def commit(self, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        timeout_ms = self._engine.settings.default_api_timeout_ms
        await self._engine.commit(offsets, timeout_ms, skips_unknown=True)

    def deserialized(self, record: Record[Any, Any]) -> Record[Any, Any]:
        return record if self._engine.deserialize is None else self._engine.deserialize(record)


class LetterWriter:
    """Producer of dead letters, with the connections and the security of the consumer."""

    def __init__(self, engine: ConsumerEngine) -> None:
        self._engine = engine
        self._producer: Producer | None = None

    async def publish(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[Header]
    ) -> None:
        if self._producer is None:
            settings = self._engine.settings.values
            shared = {each.name: settings[each.name] for each in COMMON if settings[each.name] is not None}
            self._producer = Producer(
                shared,
                clock=self._engine.clock,
                connect=self._engine.connect,
                linger_ms=0,
                # The topic has the bound: a letter is a record that a broker took, with more headers.
                max_request_size=LETTER_BYTES_MAX,
                buffer_memory=LETTER_BYTES_MAX,
            )
            await self._producer.start()
        await self._producer.publish(topic, value, key=key, headers=headers)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
