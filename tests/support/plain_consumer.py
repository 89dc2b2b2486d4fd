"""Plain consumer of one topic, by which tests judge the library: the caller owns the positions.

One fetch is in flight to each leader; `poll` returns the records of the first answer. An error of a partition
(moved, unknown epoch) makes the next poll look the leader up again. Records below the position are dropped,
because a broker sends whole batches.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.aborted_transactions import AbortedFilter
from barnabas.client.core.cluster_state import Topic
from barnabas.client.core.retries import UNKNOWN_TOPIC_TIMEOUT_MS, Retries
from barnabas.client.core.steps import raise_for
from barnabas.core.errors import KafkaError, OffsetOutOfRange, UnknownTopicOrPartition, error_for
from barnabas.core.ids import ZERO_UUID, TopicPartition
from barnabas.core.regions import FileRegion
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from barnabas.records.batch import iterate_whole_batches
from barnabas.records.record import Record, iterate_records

MAX_WAIT_MS = 500
STALE_PAUSE_MS = 100
MAX_BYTES = 16 * 1024 * 1024
PARTITION_MAX_BYTES = 4 * 1024 * 1024
VERSION_WITHOUT_TOPIC_IDS = 12


class Fetched(NamedTuple):
    partition: int
    record: Record


async def list_offsets(
    cluster: ClusterClient, topic: str, partitions: Sequence[int], timestamp: int, *, isolation_level: int = 0
) -> dict[int, int]:
    """First offset at or after `timestamp` for each partition; -1 where there is none.

    With isolation level 1 the latest offset is the last stable one.
    """

    wanted = {TopicPartition(topic, each): timestamp for each in partitions}
    found = await cluster.run_with_retries(
        lambda: cluster.state.list_offsets(wanted, isolation=isolation_level)
    )
    return {each.partition: offset for each, offset in found.items()}


class Consumer:
    """Consumer, used as a context. Its exit cancels the fetches in flight."""

    def __init__(
        self,
        cluster: ClusterClient,
        topic: str,
        positions: Mapping[int, int],
        *,
        read_committed: bool = False,
    ) -> None:
        self.positions = dict(positions)
        """Next offset to read, by partition."""
        self._cluster = cluster
        self._topic = topic
        self._read_committed = read_committed
        self._fetches: dict[int, asyncio.Task[FetchResponse]] = {}
        self._search: Retries | None = None
        """Retries while the brokers' metadata lacks partitions of the topic."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fetches, self._fetches = self._fetches, {}
        for fetch in fetches.values():
            fetch.cancel()
        await asyncio.gather(*fetches.values(), return_exceptions=True)

    async def poll(self) -> list[Fetched]:
        """Next records, or none when the brokers' wait time passes without any."""
        topic = await self._cluster.topic(self._topic, unknown_timeout_ms=UNKNOWN_TOPIC_TIMEOUT_MS)
        known = len(topic.partitions)
        await self._look_for([index for index in self.positions if index >= known])
        by_leader: defaultdict[int, list[int]] = defaultdict(list)
        for index in self.positions:
            if index < known:
                by_leader[topic.partitions[index].leader_id].append(index)
        for leader, partitions in by_leader.items():
            if leader not in self._fetches:
                self._fetches[leader] = asyncio.create_task(self._fetch(topic, leader, partitions))
        if not self._fetches:
            await self._cluster.pause(MAX_WAIT_MS)  # without partitions a poll finds no records
            return []
        await asyncio.wait(self._fetches.values(), return_when=asyncio.FIRST_COMPLETED)
        records: list[Fetched] = []
        for leader in [leader for leader, fetch in self._fetches.items() if fetch.done()]:
            records += await self._take(self._fetches.pop(leader))
        return records

    async def _look_for(self, unknown: Sequence[int]) -> None:
        """Wait for partitions that the broker's metadata lacks. They may be new, or may not exist."""
        if not unknown:
            self._search = None
            return
        state = self._cluster.state
        if self._search is None:
            self._search = state.retries(unknown_topic_timeout_ms=UNKNOWN_TOPIC_TIMEOUT_MS)
        error = UnknownTopicOrPartition(f"{self._topic} has no partition {unknown[0]}")
        pause_ms = self._search.next_pause_ms(error)
        state.forget_topic(self._topic)
        await self._cluster.pause(pause_ms)

    async def _take(self, fetch: asyncio.Task[FetchResponse]) -> list[Fetched]:
        """Records of an answer. Only errors that the broker reports are retried: a damaged batch stays
        damaged.
        """
        records: list[Fetched] = []
        errors: list[KafkaError] = []
        out_of_range: list[int] = []
        try:
            answer = fetch.result()
            raise_for(answer.error_code, None, f"fetching {self._topic}")
        except KafkaError as error:
            errors.append(error)
        else:
            for row in (row for group in answer.responses for row in group.partitions):
                if row.error_code == OffsetOutOfRange.code:
                    out_of_range.append(row.partition_index)
                elif row.error_code:
                    subject = f"fetching partition {row.partition_index} of {self._topic}"
                    errors.append(error_for(row.error_code, subject))
                else:
                    records += self._records_of(row)
        for each in errors:
            if not each.retriable:
                raise each
        if errors:
            self._cluster.state.forget_topic(self._topic)
            await self._cluster.pause(STALE_PAUSE_MS)
        if out_of_range:
            await self._skip_what_is_gone(out_of_range)
        return records

    async def _skip_what_is_gone(self, partitions: Sequence[int]) -> None:
        """Move positions that retention has overtaken to the start of the log. OFFSET_OUT_OF_RANGE does not
        contain the start offset, so the leader is asked for it.

        The answer may come from another leader, whose log starts earlier. Then the position stays as it is. A
        position past the end has no such remedy and raises the error.
        """
        starts = await list_offsets(self._cluster, self._topic, partitions, EARLIEST)
        doubtful = [index for index, start in starts.items() if start <= self.positions[index]]
        self.positions.update((index, start) for index, start in starts.items() if index not in doubtful)
        if doubtful:
            ends = await list_offsets(self._cluster, self._topic, doubtful, LATEST)
            for index, end in ends.items():
                if self.positions[index] > end:
                    raise OffsetOutOfRange(f"fetching partition {index} of {self._topic}")
            self._cluster.state.forget_topic(self._topic)
            await self._cluster.pause(STALE_PAUSE_MS)

    def _records_of(self, row: PartitionData) -> list[Fetched]:
        index = row.partition_index
        if row.records is None or isinstance(row.records, FileRegion):
            return []
        aborted = row.aborted_transactions if self._read_committed else None
        kept = AbortedFilter((each.first_offset, each.producer_id) for each in aborted or ())
        records: list[Fetched] = []
        position = self.positions[index]
        for batch in iterate_whole_batches(row.records):
            batch.check_crc()
            if kept.keeps(batch):
                records += [
                    Fetched(index, record) for record in iterate_records(batch) if record.offset >= position
                ]
            self.positions[index] = max(position, batch.next_offset)
        return records

    async def _fetch(self, topic: Topic, leader: int, partitions: Sequence[int]) -> FetchResponse:
        rows = [
            FetchPartition(
                partition=index,
                current_leader_epoch=topic.partitions[index].leader_epoch,
                fetch_offset=self.positions[index],
                partition_max_bytes=PARTITION_MAX_BYTES,
            )
            for index in partitions
        ]
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=int(self._read_committed),
            topics=[FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=rows)],
        )
        channel = await self._cluster.channel_to(leader)
        version_max = VERSION_WITHOUT_TOPIC_IDS if topic.topic_id == ZERO_UUID else None
        return await channel.send(request, FetchResponse, version_max=version_max)
