"""`ClusterView` of a cluster of this machine: each broker answers from memory, and the answers are joined."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from barnabas.console.view.local.brokers import Answer, LocalBrokers
from barnabas.console.view.local.joining import (
    group_row,
    member_row,
    offset_row,
    pairs,
    partition_rows,
    topic_row,
    topic_rows,
    traffic,
)
from barnabas.console.view.paging import groups_in_order, page_of, topics_in_order
from barnabas.console.view.rows import (
    BrokerRow,
    ClientMetric,
    ClientRow,
    EpochRow,
    FollowerRow,
    GroupDetail,
    GroupQuery,
    GroupRow,
    Latency,
    LogPicture,
    Overview,
    Page,
    SegmentRow,
    TopicDetail,
    TopicQuery,
    TopicRow,
    TransactionRow,
)
from barnabas.core.errors import UnknownTopicOrPartition

OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})


class LocalView:
    """View of one user: `principal` as the broker knows it, None without authentication."""

    def __init__(self, brokers: LocalBrokers, principal: str | None) -> None:
        self._brokers = brokers
        self._principal = principal

    async def _ask(self, name: str, **parameters: Any) -> list[Answer]:
        return await self._brokers.ask(name, self._principal, **parameters)

    async def overview(self) -> Overview:
        answers = await self._ask("overview")
        lags = await self._ask("lag_total")
        newest = max(answers, key=lambda answer: answer["at_ms"])
        own = {answer["broker_id"]: answer["own"] for answer in answers}
        known_lags = [each["lag_records"] for each in lags if each["lag_records"] is not None]
        return Overview(
            at_ms=newest["at_ms"],
            cluster_id=newest["cluster_id"],
            controller_id=newest["controller_id"],
            brokers=tuple(_broker_row(row, own, newest["controller_id"]) for row in newest["brokers"]),
            topics=newest["topics"],
            partitions=newest["partitions"],
            under_replicated=newest["under_replicated"],
            offline=newest["offline"],
            groups=sum(each["groups"] for each in answers),
            traffic=traffic([each["rates"] for each in own.values()]),
            latencies=_latencies(answers),
            size_bytes=sum(each["size_bytes"] for each in own.values()),
            lag_records=sum(known_lags) if len(known_lags) == len(lags) else None,
            store=newest["store"],
        )

    async def topics(self, query: TopicQuery) -> Page[TopicRow]:
        asked = asdict(query)
        if len(self._brokers) == 1:
            (answer,) = await self._ask("topics", **asked)
            return Page(tuple(topic_row([row]) for row in answer["rows"]), answer["total"])
        if query.sort in ("name", "partitions"):
            # The order follows from the metadata, which every broker has.
            first = (await self._ask("topics", **asked))[0]
            names = [row["name"] for row in first["rows"]]
            rows = topic_rows(await self._ask("topic_parts", names=names))
            return Page(tuple(rows[name] for name in names if name in rows), first["total"])
        return await self._topics_by_content(query)

    async def _topics_by_content(self, query: TopicQuery) -> Page[TopicRow]:
        """Pages in the order of a sum over brokers: all sums are joined here, in the console's process."""
        answers = await self._ask(
            "topic_totals", search=query.search, include_internal=query.include_internal
        )
        parts: dict[str, list[Any]] = {}
        for answer in answers:
            for name, *content in answer["rows"]:
                parts.setdefault(name, []).append(content)
        sums = [_sum_row(name, contents) for name, contents in parts.items()]
        page = page_of(
            topics_in_order(sums, query.sort, descending=query.descending), query.offset, query.limit
        )
        names = [row.name for row in page.rows]
        rows = topic_rows(await self._ask("topic_parts", names=names))
        return Page(tuple(rows[name] for name in names if name in rows), page.total)

    async def topic(self, name: str) -> TopicDetail:
        answers = await self._ask("topic", topic=name)
        return TopicDetail(topic_row([each["row"] for each in answers]), partition_rows(answers))

    async def groups(self, query: GroupQuery) -> Page[GroupRow]:
        asked = asdict(query)
        del asked["with_members"]  # a broker has them in memory
        if len(self._brokers) > 1:
            asked |= {"offset": 0, "limit": query.offset + query.limit}
        answers = await self._ask("groups", **asked)
        rows = [group_row(row) for answer in answers for row in answer["rows"]]
        total = sum(answer["total"] for answer in answers)
        if len(self._brokers) == 1:
            return Page(tuple(rows), total)
        in_order = groups_in_order(rows, query.sort, descending=query.descending)
        return replace(page_of(in_order, query.offset, query.limit), total=total)

    async def group(self, group_id: str) -> GroupDetail:
        answer = (await self._ask("group", group_id=group_id))[0]
        return GroupDetail(
            row=group_row(answer["row"]),
            assignor=answer["assignor"],
            members=tuple(map(member_row, answer["members"])),
            offsets=tuple(map(offset_row, answer["offsets"])),
            more_offsets=answer.get("more_offsets", 0),
        )

    async def log_picture(self, topic: str, partition: int) -> LogPicture:
        if partition < 0:
            raise UnknownTopicOrPartition(f"the partition {topic}-{partition} does not exist")
        answer = (await self._ask("log_picture", topic=topic, partition=partition))[0]
        committed = await self._ask("committed", topic=topic, partition=partition)
        segments = tuple(
            SegmentRow(**{**each, "index_entries": pairs(each["index_entries"])})
            for each in answer["segments"]
        )
        joined = {
            "segments": segments,
            "epochs": tuple(EpochRow(**each) for each in answer["epochs"]),
            "followers": tuple(FollowerRow(**each) for each in answer["followers"]),
            "open_transactions": pairs(answer["open_transactions"]),
            "aborted_transactions": tuple(tuple(each) for each in answer["aborted_transactions"]),
            "committed": tuple(sorted(pair for each in committed for pair in pairs(each["rows"]))),
        }
        return LogPicture(**{**answer, **joined})

    async def transactions(self, *, find_hanging: bool = False) -> tuple[TransactionRow, ...]:
        answers = await self._ask("transactions")
        rows = [
            TransactionRow(**{**row, "partitions": pairs(row["partitions"])})
            for answer in answers
            for row in answer["rows"]
        ]
        if find_hanging:
            rows += await self._hanging(rows)
        return tuple(rows)

    async def _hanging(self, known: list[TransactionRow]) -> list[TransactionRow]:
        """Open transactions in logs that no coordinator will end."""
        owned = {
            (row.producer_id, each) for row in known if row.state in OPEN_STATES for each in row.partitions
        }
        found = []
        for answer in await self._ask("open_producers"):
            for row in answer["rows"]:
                place = row["topic"], row["partition"]
                if (row["producer_id"], place) not in owned:
                    found.append(
                        TransactionRow(
                            transactional_id=None,
                            producer_id=row["producer_id"],
                            producer_epoch=row["producer_epoch"],
                            state="Hanging",
                            coordinator_id=None,
                            timeout_ms=None,
                            started_ms=row["started_ms"],
                            partitions=(place,),
                            is_hanging=True,
                            start_offset=row["start_offset"],
                            coordinator_epoch=row["coordinator_epoch"],
                        )
                    )
        return found

    async def clients(self) -> tuple[ClientRow, ...]:
        rows = []
        for answer in await self._ask("clients"):
            for row in answer["rows"]:
                metrics = tuple(
                    ClientMetric(name, value, pairs(labels)) for name, value, labels in row["metrics"]
                )
                rows.append(ClientRow(**{**row, "metrics": metrics}))
        return tuple(sorted(rows, key=lambda row: (row.client_id, row.instance_id)))


def _broker_row(row: Answer, own: dict[int, Answer], controller_id: int) -> BrokerRow:
    known = own.get(row["broker_id"], {})
    return BrokerRow(
        **row,
        is_controller=row["broker_id"] == controller_id,
        is_fenced=False,
        size_bytes=known.get("size_bytes"),
        version=known.get("version"),
        traffic=traffic([known.get("rates")]),
        connections=known.get("connections"),
        memory_bytes=known.get("memory_bytes"),
        cpu_percent=known.get("cpu_percent"),
    )


def _latencies(answers: list[Answer]) -> tuple[Latency, ...]:
    """Of several brokers, the slowest: quantiles cannot be added."""
    slowest: dict[str, Latency] = {}
    for answer in answers:
        for row in answer["latencies"]:
            latency = Latency(**row)
            known = slowest.get(latency.api)
            if known is None or latency.p99_ms > known.p99_ms:
                slowest[latency.api] = latency
    return tuple(slowest[api] for api in sorted(slowest))


def _sum_row(name: str, contents: list[Any]) -> TopicRow:
    """Columns that a page is sorted by; the other columns follow for the visible rows."""
    return TopicRow(
        name=name,
        topic_id="",
        is_internal=False,
        partitions=0,
        replication_factor=0,
        under_replicated=0,
        offline=0,
        records=sum(records for records, _, _ in contents),
        size_bytes=sum(size_bytes for _, size_bytes, _ in contents),
        traffic=traffic([rates for _, _, rates in contents]),
    )
