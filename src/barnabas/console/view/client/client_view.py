"""View of a cluster through the client library (`ClusterView`), for any Kafka.

Kafka answers question by question: metadata of all topics, offsets of all partitions, sizes of all replicas,
offsets of all groups. Each answer is kept for some seconds and shared by all viewers, and asks for many
partitions or groups at once. Rates come from the movement of end offsets between two answers.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from barnabas.client.admin.calls.cluster import LogDir, describe_log_dirs
from barnabas.client.admin.groups import GroupDescription, Groups
from barnabas.client.admin.transactions import OpenTransaction, Transactions
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.cluster_state import Topic
from barnabas.console.view.client.cached import Cached
from barnabas.console.view.client.offsets import (
    Committed,
    GroupAtCoordinator,
    by_leader,
    committed_offsets,
    groups_of_brokers,
    log_offsets,
    timestamps_at,
)
from barnabas.console.view.interface import NotOffered
from barnabas.console.view.paging import groups_in_order, matches, page_of, topics_in_order
from barnabas.console.view.rows import (
    BrokerRow,
    ClientRow,
    GroupDetail,
    GroupOffsetRow,
    GroupQuery,
    GroupRow,
    LogPicture,
    MemberRow,
    Overview,
    Page,
    PartitionRow,
    TopicDetail,
    TopicQuery,
    TopicRow,
    Traffic,
    TransactionRow,
)
from barnabas.core.clock import Clock
from barnabas.core.errors import GroupIdNotFound, KafkaError, UnknownTopicOrPartition
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST, READ_COMMITTED

TOPICS_FRESH_MS: Final = 2_000.0
OFFSETS_FRESH_MS: Final = 5_000.0
SIZES_FRESH_MS: Final = 20_000.0
GROUPS_FRESH_MS: Final = 3_000.0
COMMITTED_FRESH_MS: Final = 5_000.0
RATE_SPAN_MS: Final = 4_000.0
"""Least time between two answers that make a rate."""


@dataclass(frozen=True, slots=True)
class Offsets:
    at_ms: float
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)


class ClientView:
    def __init__(self, cluster: ClusterClient, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._groups = Groups(cluster)
        self._transactions = Transactions(cluster)
        self._topics = Cached(self._load_topics, clock, fresh_ms=TOPICS_FRESH_MS)
        self._offsets = Cached(self._load_offsets, clock, fresh_ms=OFFSETS_FRESH_MS)
        self._log_dirs = Cached(self._load_log_dirs, clock, fresh_ms=SIZES_FRESH_MS)
        self._listed = Cached(self._load_groups, clock, fresh_ms=GROUPS_FRESH_MS)
        self._committed = Cached(self._load_committed, clock, fresh_ms=COMMITTED_FRESH_MS)
        self._before: Offsets | None = None
        self._rates: Mapping[str, float] = {}
        """Records per second by topic."""

    async def close(self) -> None:
        for each in (self._topics, self._offsets, self._log_dirs, self._listed, self._committed):
            await each.close()

    # --- answers ---

    async def overview(self) -> Overview:
        topics, groups = await asyncio.gather(self._topics.get(), self._listed.get())
        sizes = await self._sizes_by_replica()
        ends = (await self._offsets.get()).ends
        committed = await self._committed.get()
        state = self._cluster.state
        partitions = [each for topic in topics.values() for each in topic.partitions]
        led: defaultdict[int, int] = defaultdict(int)
        held: defaultdict[int, int] = defaultdict(int)
        for each in partitions:
            led[each.leader_id] += 1
            for broker_id in each.replicas:
                held[broker_id] += 1
        size_of: defaultdict[int, int] = defaultdict(int)
        for (broker_id, _), size in (sizes or {}).items():
            size_of[broker_id] += size
        brokers = tuple(
            BrokerRow(
                broker_id,
                str(address),
                state.racks.get(broker_id),
                is_controller=broker_id == state.controller_id,
                is_fenced=False,
                leaders=led[broker_id],
                replicas=held[broker_id],
                size_bytes=None if sizes is None else size_of[broker_id],
            )
            for broker_id, address in sorted(state.brokers.items())
        )
        lags = [lag for each in committed.values() if (lag := _lag_of(each, ends)) is not None]
        return Overview(
            at_ms=self._clock.now_ms(),
            cluster_id=state.cluster_id or "",
            controller_id=state.controller_id,
            brokers=brokers,
            topics=sum(not topic.is_internal for topic in topics.values()),
            partitions=len(partitions),
            under_replicated=sum(len(each.isr) < len(each.replicas) for each in partitions),
            offline=sum(each.leader_id < 0 for each in partitions),
            groups=len(groups),
            traffic=Traffic(records_in=sum(self._rates.values()) if self._before else None),
            size_bytes=None if sizes is None else sum(sizes.values()),
            lag_records=sum(lags),
        )

    async def topics(self, query: TopicQuery) -> Page[TopicRow]:
        topics = await self._topics.get()
        wanted = [
            topic
            for name, topic in topics.items()
            if (query.include_internal or not topic.is_internal) and matches(name, query.search)
        ]
        groups = await self._groups_by_topic()
        sizes = await self._sizes_by_replica()
        offsets = await self._offsets.get()
        rows = [self._topic_row(topic, offsets, sizes, groups) for topic in wanted]
        ordered = topics_in_order(rows, query.sort, descending=query.descending)
        return page_of(ordered, query.offset, query.limit)

    async def topic(self, name: str) -> TopicDetail:
        topic = (await self._topics.get()).get(name)
        if topic is None:
            self._topics.forget()
            topic = (await self._topics.get()).get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name}")
        leaders = by_leader([topic])
        starts, ends, stable, sizes, groups = await asyncio.gather(
            log_offsets(self._cluster, leaders, EARLIEST),
            log_offsets(self._cluster, leaders, LATEST),
            log_offsets(self._cluster, leaders, LATEST, isolation=READ_COMMITTED),
            self._sizes_by_replica(),
            self._groups_by_topic(),
        )
        found = Offsets(self._clock.monotonic_ms(), starts, ends)
        partitions = tuple(
            PartitionRow(
                each.index,
                each.leader_id,
                each.leader_epoch,
                each.replicas,
                each.isr,
                each.offline,
                starts.get(TopicPartition(name, each.index)),
                ends.get(TopicPartition(name, each.index)),
                (sizes or {}).get((each.leader_id, TopicPartition(name, each.index))),
                stable.get(TopicPartition(name, each.index)),
            )
            for each in topic.partitions
        )
        return TopicDetail(self._topic_row(topic, found, sizes, groups), partitions)

    async def groups(self, query: GroupQuery) -> Page[GroupRow]:
        listed, committed = await asyncio.gather(self._listed.get(), self._committed.get())
        ends = (await self._offsets.get()).ends
        rows = []
        for name, found in listed.items():
            own = committed.get(name, {})
            if not matches(name, query.search):
                continue
            if query.topic and not any(at.topic == query.topic for at in own):
                continue
            rows.append(_group_row(found, own, ends))
        ordered = groups_in_order(rows, query.sort, descending=query.descending)
        page = page_of(ordered, query.offset, query.limit)
        if len(page.rows) > DESCRIBED_MAX or not query.with_members:
            return page
        members = await self._member_counts([row.group_id for row in page.rows])
        return replace(page, rows=tuple(replace(row, members=members.get(row.group_id)) for row in page.rows))

    async def group(self, group_id: str) -> GroupDetail:
        self._listed.forget()
        found = (await self._listed.get()).get(group_id)
        if found is None:
            raise GroupIdNotFound(f"there is no group {group_id}")
        described, committed = await asyncio.gather(
            self._describe(group_id),
            committed_offsets(self._cluster, {group_id: found.coordinator_id}),
        )
        own = committed.get(group_id, {})
        owners = (
            {}
            if described is None
            else {at: each.member_id for each in described.members for at in each.partitions}
        )
        offsets = await self._offset_rows(own, owners)
        row = replace(
            _group_row(found, own, {}),
            members=None if described is None else len(described.members),
            state=found.group.group_state if described is None else described.state,
            lag_records=_sum_of(each.lag_records for each in offsets),
            lag_ms=max((each.lag_ms for each in offsets if each.lag_ms is not None), default=None),
            topics=len({each.topic for each in offsets}),
        )
        members = (
            ()
            if described is None
            else tuple(
                MemberRow(each.member_id, each.instance_id, each.client_id, each.host, each.partitions)
                for each in described.members
            )
        )
        return GroupDetail(row, "" if described is None else described.assignor, members, offsets)

    async def log_picture(self, topic: str, partition: int) -> LogPicture:
        """Offsets alone: Kafka tells clients nothing of its files."""
        detail = await self.topic(topic)
        if not 0 <= partition < len(detail.partitions):
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{partition}")
        row = detail.partitions[partition]
        at = TopicPartition(topic, partition)
        committed = await self._committed.get()
        return LogPicture(
            topic,
            partition,
            row.leader_id,
            row.leader_epoch,
            start_offset=row.start_offset or 0,
            last_stable_offset=row.last_stable_offset or 0,
            high_watermark=row.end_offset or 0,
            end_offset=None,
            recovery_point=None,
            size_bytes=row.size_bytes,
            committed=tuple(
                (name, found[at].offset) for name, found in sorted(committed.items()) if at in found
            ),
        )

    async def transactions(self, *, find_hanging: bool = False) -> tuple[TransactionRow, ...]:
        listed = await self._transactions.list_all()
        rows = [
            TransactionRow(
                each.transactional_id,
                each.producer_id,
                None,
                each.state,
                each.coordinator_id,
                timeout_ms=None,
                started_ms=None,
                partitions=(),
            )
            for each in listed
        ]
        open_ones = [index for index, row in enumerate(rows) if row.state not in _ENDED]
        for index in open_ones[:DESCRIBED_MAX]:
            rows[index] = await self._described(rows[index])
        if find_hanging:
            names = [name for name, topic in (await self._topics.get()).items() if not topic.is_internal]
            rows += [_hanging_row(each) for each in await self._transactions.hanging(names)]
        return tuple(rows)

    async def clients(self) -> tuple[ClientRow, ...]:
        raise NotOffered("this cluster does not show what clients say of themselves")

    # --- what is kept ---

    async def _load_topics(self) -> Mapping[str, Topic]:
        await self._cluster.run_with_retries(lambda: self._cluster.state.refresh(None))
        return dict(self._cluster.state.topics)

    async def _load_offsets(self) -> Offsets:
        leaders = by_leader((await self._topics.get()).values())
        at_ms = self._clock.monotonic_ms()
        starts = await log_offsets(self._cluster, leaders, EARLIEST)
        ends = await log_offsets(self._cluster, leaders, LATEST)
        found = Offsets(at_ms, starts, ends)
        before = self._before
        if before is None:
            self._before = found
        elif at_ms - before.at_ms >= RATE_SPAN_MS:
            self._rates = _rates(before, found)
            self._before = found
        return found

    async def _load_log_dirs(self) -> Mapping[int, Mapping[str, LogDir]] | None:
        """Log directories of all brokers; None where the user may not see them."""
        try:
            return await self._cluster.run(describe_log_dirs(self._cluster.state, None))
        except KafkaError:
            return None

    async def _load_groups(self) -> Mapping[str, GroupAtCoordinator]:
        await self._topics.get()
        return await groups_of_brokers(self._cluster, list(self._cluster.state.brokers))

    async def _load_committed(self) -> Mapping[str, Mapping[TopicPartition, Committed]]:
        listed = await self._listed.get()
        return await committed_offsets(
            self._cluster, {name: found.coordinator_id for name, found in listed.items()}
        )

    # --- parts ---

    async def _sizes_by_replica(self) -> Mapping[tuple[int, TopicPartition], int] | None:
        log_dirs = await self._log_dirs.get()
        if log_dirs is None:
            return None
        return {
            (broker_id, at): replica.size_bytes
            for broker_id, directories in log_dirs.items()
            for directory in directories.values()
            for at, replica in directory.replicas.items()
            if not replica.is_future
        }

    def _topic_row(
        self,
        topic: Topic,
        offsets: Offsets,
        sizes: Mapping[tuple[int, TopicPartition], int] | None,
        groups: Mapping[str, int],
    ) -> TopicRow:
        records, size = 0, 0
        knows_offsets = True
        for each in topic.partitions:
            at = TopicPartition(topic.name, each.index)
            start, end = offsets.starts.get(at), offsets.ends.get(at)
            if start is None or end is None:
                knows_offsets = False
            else:
                records += end - start
            if sizes is not None:
                size += sizes.get((each.leader_id, at), 0)
        return TopicRow(
            topic.name,
            str(topic.topic_id),
            topic.is_internal,
            len(topic.partitions),
            max((len(each.replicas) for each in topic.partitions), default=0),
            sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
            sum(each.leader_id < 0 for each in topic.partitions),
            records if knows_offsets else None,
            None if sizes is None else size,
            Traffic(records_in=self._rates.get(topic.name)),
            groups.get(topic.name, 0),
        )

    async def _groups_by_topic(self) -> Mapping[str, int]:
        found: defaultdict[str, int] = defaultdict(int)
        for own in (await self._committed.get()).values():
            for name in {at.topic for at in own}:
                found[name] += 1
        return found

    async def _offset_rows(
        self, own: Mapping[TopicPartition, Committed], owners: Mapping[TopicPartition, str]
    ) -> tuple[GroupOffsetRow, ...]:
        topics = await self._topics.get()
        wanted = sorted(own.keys() | owners.keys())
        leaders: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for at in wanted:
            topic = topics.get(at.topic)
            if topic is not None and at.partition < len(topic.partitions):
                leader_id = topic.partitions[at.partition].leader_id
                if leader_id >= 0:
                    leaders[leader_id].append(at)
        starts, ends = await asyncio.gather(
            log_offsets(self._cluster, leaders, EARLIEST), log_offsets(self._cluster, leaders, LATEST)
        )
        behind = {
            at: max(each.offset, starts.get(at, 0))
            for at, each in own.items()
            if at in ends and each.offset < ends[at]
        }
        stamps = await timestamps_at(self._cluster, leaders, behind)
        now_ms = self._clock.now_ms()
        rows = []
        for at in wanted:
            committed, end = own.get(at), ends.get(at)
            lag = None if committed is None or end is None else max(end - committed.offset, 0)
            lag_ms = 0 if lag == 0 else max(now_ms - stamps[at], 0) if at in stamps else None
            rows.append(
                GroupOffsetRow(
                    at.topic,
                    at.partition,
                    None if committed is None else committed.offset,
                    starts.get(at),
                    end,
                    lag,
                    lag_ms,
                    owners.get(at),
                    "" if committed is None else committed.metadata,
                )
            )
        return tuple(rows)

    async def _describe(self, group_id: str) -> GroupDescription | None:
        """The group; None for one whose type has no description here, or that the user may not see."""
        try:
            return await self._groups.describe(group_id)
        except KafkaError:
            return None

    async def _member_counts(self, names: list[str]) -> dict[str, int]:
        limit = asyncio.Semaphore(DESCRIBED_AT_ONCE)

        async def count(name: str) -> int | None:
            async with limit:
                described = await self._describe(name)
            return None if described is None else len(described.members)

        counted = await asyncio.gather(*map(count, names[:DESCRIBED_MAX]))
        return {name: members for name, members in zip(names, counted, strict=False) if members is not None}

    async def _described(self, row: TransactionRow) -> TransactionRow:
        assert row.transactional_id is not None
        try:
            found = await self._transactions.describe(row.transactional_id)
        except KafkaError:
            return row
        return replace(
            row,
            producer_epoch=found.producer_epoch,
            state=found.state,
            timeout_ms=found.timeout_ms,
            started_ms=None if found.start_timestamp_ms < 0 else found.start_timestamp_ms,
            partitions=tuple((at.topic, at.partition) for at in found.partitions),
        )


DESCRIBED_MAX: Final = 200
DESCRIBED_AT_ONCE: Final = 16
_ENDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


def _rates(before: Offsets, after: Offsets) -> dict[str, float]:
    seconds = (after.at_ms - before.at_ms) / 1_000
    found: defaultdict[str, float] = defaultdict(float)
    for at, end in after.ends.items():
        if at in before.ends:
            found[at.topic] += max(end - before.ends[at], 0) / seconds
    return found


def _group_row(
    found: GroupAtCoordinator, own: Mapping[TopicPartition, Committed], ends: Mapping[TopicPartition, int]
) -> GroupRow:
    group = found.group
    kind = (group.group_type or "classic").lower()
    if kind == "classic" and group.protocol_type not in ("", "consumer"):
        kind = group.protocol_type
    return GroupRow(
        group.group_id,
        group.group_state,
        kind,
        members=None,
        topics=len({at.topic for at in own}),
        lag_records=_lag_of(own, ends),
        lag_ms=None,
        coordinator_id=found.coordinator_id,
    )


def _lag_of(own: Mapping[TopicPartition, Committed], ends: Mapping[TopicPartition, int]) -> int | None:
    return _sum_of(max(ends[at] - each.offset, 0) for at, each in own.items() if at in ends)


def _sum_of(found: Iterable[int | None]) -> int | None:
    """Sum of the known numbers; None when none is known."""
    known = [each for each in found if each is not None]
    return sum(known) if known else None


def _hanging_row(found: OpenTransaction) -> TransactionRow:
    return TransactionRow(
        None,
        found.producer_id,
        found.producer_epoch,
        "Hanging",
        None,
        timeout_ms=None,
        started_ms=None if found.last_timestamp_ms < 0 else found.last_timestamp_ms,
        partitions=((found.topic_partition.topic, found.topic_partition.partition),),
        is_hanging=True,
        start_offset=found.start_offset,
        coordinator_epoch=found.coordinator_epoch,
    )
