"""The view of one broker over its private socket, compared with what an admin client says."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from barnabas.cluster.shared import unix_socket
from barnabas.console.view.local.brokers import LocalBrokers, find_sockets
from barnabas.console.view.local.local_view import LocalView
from barnabas.console.view.rows import GroupQuery, TopicQuery
from barnabas.core.errors import GroupIdNotFound, InvalidRequest, UnknownTopicOrPartition
from barnabas.core.ids import TopicPartition
from barnabas.inspection.client import BrokerAway, InspectionClient
from barnabas.inspection.wire import LENGTH, QUESTION_BYTES_MAX, SOCKET_NAME
from barnabas.protocol.config_numbers import ResourceType
from tests.support.broker import BarnabasBroker, running
from tests.support.waiting import eventually_async

OLD_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasBroker]:
    directory = tmp_path_factory.mktemp("inspected") / "data"
    with running(BarnabasBroker(directory, settings={"log.segment.bytes": 4096})) as started:
        assert isinstance(started, BarnabasBroker)
        yield started


@pytest.fixture
async def view(broker: BarnabasBroker) -> AsyncIterator[LocalView]:
    path = broker.data_directory / SOCKET_NAME

    async def is_there() -> bool:
        return path.is_socket()

    await eventually_async(is_there)
    brokers = LocalBrokers(find_sockets(broker.data_directory))
    yield LocalView(brokers, None)
    await brokers.close()


@pytest.fixture
async def admin(broker: BarnabasBroker) -> AsyncIterator[Admin]:
    async with Admin(broker.bootstrap) as opened:
        yield opened


async def filled(broker: BarnabasBroker, admin: Admin, name: str, *counts: int, **configs: str) -> None:
    """A topic with this many records in each partition."""
    await admin.create_topics([NewTopic(name, partitions=len(counts), configs=configs)])
    async with Producer(broker.bootstrap) as producer:
        for partition, count in enumerate(counts):
            for number in range(count):
                sent = await producer.send(
                    name, f"value {number}".encode() * 10, key=b"k", partition=partition
                )
            if count:
                await sent


async def test_topics_are_those_of_the_admin_client(
    broker: BarnabasBroker, admin: Admin, view: LocalView
) -> None:
    await filled(broker, admin, "filled", 30, 12)
    await filled(broker, admin, "filled.more", 5, **{"cleanup.policy": "compact"})
    await admin.create_topics([NewTopic("void", partitions=3)])
    page = await view.topics(TopicQuery(search="FILL", sort="records", descending=True))
    assert page.total == 2
    first, second = page.rows
    assert (first.name, first.partitions, first.records, first.offline) == ("filled", 2, 42, 0)
    assert (second.name, second.records, second.cleanup_policy) == ("filled.more", 5, "compact")
    (described,) = (await admin.describe_topics(["filled"])).values()
    assert first.topic_id == str(described.topic_id)
    sizes = await admin.describe_log_dirs()
    assert first.size_bytes == sum(
        replica.size_bytes
        for directories in sizes.values()
        for directory in directories.values()
        for each, replica in directory.replicas.items()
        if each.topic == "filled"
    )
    names = [row.name for row in (await view.topics(TopicQuery(limit=1_000, include_internal=True))).rows]
    assert names == sorted(topic.name for topic in await admin.list_topics(include_internal=True))
    second_page = await view.topics(TopicQuery(offset=1, limit=1))
    assert [row.name for row in second_page.rows] == names[1:2]


async def test_a_topic_has_its_partitions(broker: BarnabasBroker, admin: Admin, view: LocalView) -> None:
    await filled(broker, admin, "detailed", 3, 7)
    await admin.delete_records({TopicPartition("detailed", 1): 2})
    detail = await view.topic("detailed")
    assert [(row.partition, row.start_offset, row.end_offset) for row in detail.partitions] == [
        (0, 0, 3), (1, 2, 7),
    ]  # fmt: skip
    assert detail.partitions[0].replicas == detail.partitions[0].isr
    with pytest.raises(UnknownTopicOrPartition):
        await view.topic("nobody")


async def test_a_topic_that_is_made_again_has_no_times_of_the_one_before(
    admin: Admin, broker: BarnabasBroker, view: LocalView
) -> None:
    at = TopicPartition("again", 0)
    now_ms = (await view.overview()).at_ms
    for written_ms in (now_ms - OLD_MS, now_ms):
        await admin.create_topics([NewTopic("again", partitions=1)])
        async with Producer(broker.bootstrap) as producer:
            for _ in range(2):
                await producer.publish("again", b"v", partition=0, timestamp_ms=written_ms)
        await admin.alter_group_offsets("reads-again", {at: 1})
        (row,) = (await view.group("reads-again")).offsets
        assert row.lag_ms is not None
        assert (row.lag_ms >= OLD_MS) == (written_ms < now_ms)
        await admin.delete_topics(["again"])


async def test_groups_have_their_lag_in_records_and_in_time(
    broker: BarnabasBroker, admin: Admin, view: LocalView
) -> None:
    await admin.create_topics([NewTopic("read", partitions=2)])
    old_ms = (await view.overview()).at_ms - OLD_MS
    async with Producer(broker.bootstrap) as producer:
        for number in range(4):
            await producer.publish("read", b"v", partition=0, timestamp_ms=old_ms + number)
    await admin.alter_group_offsets("lagging", {TopicPartition("read", 0): 1, TopicPartition("read", 1): 0})
    await admin.alter_group_offsets("ready", {TopicPartition("read", 0): 4})
    page = await view.groups(GroupQuery(topic="read", sort="lag", descending=True))
    lagging, ready = page.rows
    assert (lagging.group_id, lagging.lag_records, lagging.state, lagging.topics) == (
        "lagging",
        3,
        "Empty",
        1,
    )
    assert lagging.lag_ms is not None
    assert OLD_MS <= lagging.lag_ms < OLD_MS + 600_000
    assert (ready.group_id, ready.lag_records, ready.lag_ms) == ("ready", 0, 0)
    detail = await view.group("lagging")
    assert [(row.partition, row.committed, row.end_offset, row.lag_records) for row in detail.offsets] == [
        (0, 1, 4, 3), (1, 0, 0, 0),
    ]  # fmt: skip
    assert (await view.topic("read")).row.groups == 2
    assert (await view.overview()).groups >= 2
    with pytest.raises(GroupIdNotFound):
        await view.group("nobody")


async def test_a_group_has_its_members(broker: BarnabasBroker, admin: Admin, view: LocalView) -> None:
    await filled(broker, admin, "consumed", 2, 2)
    for protocol in ("classic", "consumer"):
        settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, "group_protocol": protocol}
        async with Consumer(
            group=f"members-{protocol}", topics=["consumed"], auto_offset_reset="earliest", **settings
        ) as consumer:
            async for _ in consumer:
                break
            detail = await view.group(f"members-{protocol}")
            described = (await admin.describe_groups([f"members-{protocol}"]))[f"members-{protocol}"]
            (member,) = detail.members
            assert member.partitions == (("consumed", 0), ("consumed", 1))
            assert member.member_id == described.members[0].member_id
            assert (detail.row.kind, detail.row.state) == (protocol, described.state)
            assert {row.member_id for row in detail.offsets} == {member.member_id}


async def test_the_picture_of_a_log(broker: BarnabasBroker, admin: Admin, view: LocalView) -> None:
    await admin.create_topics(
        [NewTopic("drawn", configs={"segment.bytes": "4096", "index.interval.bytes": "0"})]
    )
    async with Producer(broker.bootstrap, linger_ms=0) as producer:
        for number in range(120):
            await producer.publish("drawn", bytes(100), timestamp_ms=1_000 + number)
    await admin.alter_group_offsets("artist", {TopicPartition("drawn", 0): 7})
    picture = await view.log_picture("drawn", 0)
    assert (picture.start_offset, picture.high_watermark, picture.end_offset) == (0, 120, 120)
    assert len(picture.segments) > 3
    assert picture.segments[-1].is_active
    assert [each.next_offset for each in picture.segments[:-1]] == [
        each.base_offset for each in picture.segments[1:]
    ]
    directory = broker.data_directory / "drawn-0"
    assert [each.size_bytes for each in picture.segments] == [
        path.stat().st_size for path in sorted(directory.glob("*.log"))
    ]
    first = picture.segments[0]
    assert (first.first_timestamp_ms, first.base_offset) == (1_000, 0)
    assert first.largest_timestamp_ms == 1_000 + first.next_offset - 1
    assert first.index_entries == tuple(sorted(first.index_entries))
    assert first.index_entries
    assert picture.epochs
    assert picture.epochs[0].start_offset == 0
    assert picture.committed == (("artist", 7),)
    for wrong in (("drawn", 1), ("nobody", 0), ("drawn", -1)):
        with pytest.raises(UnknownTopicOrPartition):
            await view.log_picture(*wrong)


async def test_transactions_are_open_hanging_and_over(
    broker: BarnabasBroker, admin: Admin, view: LocalView
) -> None:
    await admin.create_topics([NewTopic("paid")])
    async with Producer(broker.bootstrap, transactional_id="pay") as producer:
        async with producer.transaction():
            await producer.publish("paid", b"1")
            (row,) = [each for each in await view.transactions() if each.transactional_id == "pay"]
            assert (row.state, row.partitions) == ("Ongoing", (("paid", 0),))
            assert (await view.log_picture("paid", 0)).open_transactions == ((row.producer_id, 0),)
            assert not [each for each in await view.transactions(find_hanging=True) if each.is_hanging]

        async def is_over() -> bool:
            (after,) = [each for each in await view.transactions() if each.transactional_id == "pay"]
            return after.state == "CompleteCommit"

        await eventually_async(is_over)
        await producer.begin_transaction()
        await producer.publish("paid", b"2")
        await producer.abort_transaction()
    ((producer_id, first, last),) = (await view.log_picture("paid", 0)).aborted_transactions
    assert (producer_id, first) == (row.producer_id, 2)
    assert last == 3


async def test_what_clients_report_is_shown(broker: BarnabasBroker, admin: Admin, view: LocalView) -> None:
    from confluent_kafka import Producer as OfConfluent

    settings: dict[str, str | None] = {"metrics": "*", "interval.ms": "100", "match": "client_id=telling"}
    await admin.alter_configs({(ResourceType.CLIENT_METRICS, "all"): settings})
    client = OfConfluent({"bootstrap.servers": broker.bootstrap, "client.id": "telling"})

    async def is_reported() -> bool:
        client.produce("told", b"x")
        client.poll(0.02)
        return any(row.metrics for row in await view.clients() if row.client_id == "telling")

    await eventually_async(is_reported)
    (row,) = await view.clients()
    assert (row.host, row.user) == ("127.0.0.1", "ANONYMOUS")
    assert row.software.startswith("confluent-kafka-python")
    assert all(metric.name.startswith("org.apache.kafka.") for metric in row.metrics)
    client.flush()


async def test_the_overview_counts_and_has_rates(
    broker: BarnabasBroker, admin: Admin, view: LocalView
) -> None:
    await admin.create_topics([NewTopic("counted")])

    async def has_rates() -> bool:
        async with Producer(broker.bootstrap) as producer:
            await producer.publish("counted", bytes(1_000))
        overview = await view.overview()
        return bool(overview.traffic.bytes_in) and bool(overview.brokers[0].cpu_percent)

    await eventually_async(has_rates)
    overview = await view.overview()
    cluster = await admin.describe_cluster()
    (row,) = overview.brokers
    assert overview.cluster_id == cluster.cluster_id
    assert (row.broker_id, row.is_controller, row.address) == (overview.controller_id, True, broker.bootstrap)
    topics = await admin.list_topics(include_internal=True)
    assert overview.topics == len([topic for topic in topics if not topic.is_internal])
    assert overview.partitions == row.leaders == sum(len(topic.partitions) for topic in topics)
    assert (overview.under_replicated, overview.offline, overview.store) == (0, 0, "embedded")
    assert row.memory_bytes
    assert row.memory_bytes > 10_000_000
    assert "Produce" in {latency.api for latency in overview.latencies}


@pytest.mark.slow
async def test_the_socket_is_private_and_goes_with_the_broker(tmp_path: Path) -> None:
    with running(BarnabasBroker(tmp_path / "data")) as broker:
        path = broker.data_directory / SOCKET_NAME

        async def answers() -> bool:
            return path.is_socket()

        await eventually_async(answers)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        client = InspectionClient(path)
        before = await client.ask("overview", None)
        broker.kill()
        with pytest.raises(BrokerAway):
            await client.ask("overview", None)
        broker.start()
        after: dict[str, object] = {}

        async def answers_again() -> bool:
            nonlocal after
            after = await client.ask("overview", None)
            return True

        await eventually_async(answers_again)
        assert after["cluster_id"] == before["cluster_id"]
        await client.close()
        broker.stop()
        assert not path.exists()


@pytest.mark.parametrize(
    "question",
    [
        {"ask": "nothing"},
        {"ask": ["topics"]},
        {"ask": "topics", "limit": -1},
        {"ask": "topics", "limit": 10**9},
        {"ask": "topics", "limit": True},
        {"ask": "topics", "offset": "1"},
        {"ask": "topics", "search": "x" * 2_000},
        {"ask": "topics", "search": None},
        {"ask": "topics", "sort": "colour"},
        {"ask": "topics", "descending": 1},
        {"ask": "topics", "principal": 5},
        {"ask": "topics", "principal": "alice"},
        {"ask": "topic_parts", "names": [1]},
        {"ask": "log_picture", "topic": "t", "partition": 1 << 70},
    ],
    ids=str,
)
async def test_wrong_questions_are_refused(view: LocalView, broker: BarnabasBroker, question: object) -> None:
    with pytest.raises(InvalidRequest):
        await asked(broker, json.dumps(question).encode())
    assert (await view.overview()).brokers


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b"\xff", b"[" * 60_000, b'"x"'])
async def test_bytes_that_are_no_question_are_refused(
    view: LocalView, broker: BarnabasBroker, payload: bytes
) -> None:
    with pytest.raises(InvalidRequest):
        await asked(broker, payload)
    assert (await view.overview()).brokers


async def test_a_large_question_ends_its_connection(view: LocalView, broker: BarnabasBroker) -> None:
    reader, writer = await connected(broker)
    writer.write(LENGTH.pack(QUESTION_BYTES_MAX + 1))
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    assert (await view.overview()).brokers


async def connected(broker: BarnabasBroker) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = unix_socket.connect(broker.data_directory / SOCKET_NAME)
    return await asyncio.open_unix_connection(sock=sock)


async def asked(broker: BarnabasBroker, payload: bytes) -> object:
    reader, writer = await connected(broker)
    writer.write(LENGTH.pack(len(payload)) + payload)
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    answer = json.loads(await reader.readexactly(length))
    writer.close()
    await writer.wait_closed()
    assert answer["error"] == InvalidRequest.code, answer
    raise InvalidRequest(answer["message"])
