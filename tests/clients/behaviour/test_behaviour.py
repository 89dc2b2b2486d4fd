"""One behavioural suite for our client, aiokafka, kafka-python and confluent-kafka, on both brokers.

docs/CLIENT.md shows the outcomes as a table (`comparison`). The title of a behaviour is its row.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import time
from collections.abc import Callable, Collection
from typing import Any

import pytest

from barnabas.client import Admin, Consumer, ProducerInterceptor, ProducerRecord, Record, Retry
from barnabas.client.core.steps import ask
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tests.clients.behaviour.driver import Absent, At, Driver, Got, Member
from tests.clients.behaviour.ours import Ours
from tests.support.broker import Broker

NewTopic = Callable[..., str]
behaviour = pytest.mark.behaviour
PATIENCE_S = 45.0
"""Less than elsewhere: another client that stalls gets a second attempt."""


def conf(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings, which may be of any type."""
    return settings


def read(member: Member, count: int) -> list[Got]:
    """So many records, in the order of their arrival."""
    found: list[Got] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"silence after {len(found)} of {count} records"
        found += member.poll()
    return found


def values(found: Collection[Got]) -> list[bytes]:
    return [each.value for each in found]


def write(driver: Driver, peer: Broker, topic: str, *words: bytes, **settings: Any) -> None:
    sender = driver.sender(peer.bootstrap, **settings)
    for wait in [sender.send(topic, word) for word in words]:
        wait()
    sender.close()


def only_ours(driver: Driver, what: str) -> None:
    if not isinstance(driver, Ours):
        raise Absent(f"no {what}")


# --- the package ---


@behaviour("types (`py.typed`)")
def test_the_package_has_types(driver: Driver, peer: Broker) -> None:
    if not (importlib.resources.files(driver.package) / "py.typed").is_file():
        raise Absent("no py.typed")


@behaviour("asyncio without threads, with headers")
def test_records_go_round_on_the_loop(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    driver.on_the_loop(peer.bootstrap, new_topic())


@behaviour("`async for`")
def test_a_consumer_is_iterated(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    topic = new_topic()
    write(Ours(), peer, topic, b"0", b"1", b"2")
    assert driver.iterate(peer.bootstrap, topic, 3) == [b"0", b"1", b"2"]


@behaviour("calls without asyncio")
def test_calls_need_no_loop(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    if driver.name == "aiokafka":
        raise Absent("asyncio alone")
    topic = new_topic()
    write(driver, peer, topic, b"v")
    member = driver.member(peer.bootstrap, assigned=[(topic, 0)])
    assert values(read(member, 1)) == [b"v"]
    member.close()


# --- producing ---


@behaviour("codecs gzip, snappy, lz4, zstd")
def test_every_codec_is_read_back(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    topic = new_topic()
    codecs = ("gzip", "snappy", "lz4", "zstd")
    for codec in codecs:
        write(driver, peer, topic, codec.encode() * 100, **{"compression.type": codec})
    member = driver.member(peer.bootstrap, assigned=[(topic, 0)])
    assert values(read(member, 4)) == [codec.encode() * 100 for codec in codecs]
    member.close()


@behaviour("keys, headers, timestamps, tombstones")
def test_all_parts_of_a_record_arrive(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    topic = new_topic()
    sender = driver.sender(peer.bootstrap)
    placed = sender.send(
        topic, b"v", key=b"k", headers=[("a", b"1"), ("a", b"2")], partition=0, timestamp_ms=1_700_000_000_000
    )()
    assert (placed.partition, placed.offset) == (0, 0)
    assert sender.send(topic, None, key=b"k")().offset == 1
    sender.close()
    member = driver.member(peer.bootstrap, assigned=[(topic, 0)])
    first, second = read(member, 2)
    assert (first.key, first.value, first.timestamp_ms) == (b"k", b"v", 1_700_000_000_000)
    assert first.headers == (("a", b"1"), ("a", b"2"))
    assert (second.key, second.value) == (b"k", None)
    member.close()


@behaviour("keys go where Java's go (murmur2)")
def test_keys_go_where_java_puts_them(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    """Keys and hashes of Java's own test of murmur2, modulo five."""
    wanted = {
        b"21": 0,
        b"foobar": 1,
        b"a-little-bit-long-string": 2,
        b"a-little-bit-longer-string": 4,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": 2,
    }
    topic = new_topic(partitions=5)
    sender = driver.sender(peer.bootstrap)
    assert {key: sender.send(topic, b"v", key=key)().partition for key in wanted} == wanted
    sender.close()


@behaviour("partitioner of one's own")
def test_a_function_chooses_the_partition(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    sender = driver.sender(peer.bootstrap, **driver.partition_by())
    assert [sender.send(topic, b"v", key=key)().partition for key in (b"a", b"b", b"c")] == [2, 2, 2]
    sender.close()


@behaviour("serializers and deserializers")
def test_values_are_serialized(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    topic = new_topic()
    sending, reading = driver.json_settings()
    sender = driver.sender(peer.bootstrap, **sending)
    sender.send(topic, {"apples": 12})()
    sender.close()
    member = driver.member(peer.bootstrap, assigned=[(topic, 0)], **reading)
    assert [each.value for each in read(member, 1)] == [{"apples": 12}]
    member.close()


@behaviour("interceptors (KIP-42)")
def test_an_interceptor_sees_each_record(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    only_ours(driver, "interceptors")
    topic = new_topic()

    class Marked(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(headers={"seen": "1"})

    write(driver, peer, topic, b"v", interceptors=[Marked()])
    member = driver.member(peer.bootstrap, assigned=[(topic, 0)])
    assert read(member, 1)[0].headers == (("seen", b"1"),)
    member.close()


@behaviour("idempotence by default")
def test_batches_carry_a_producer_id_by_default(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    topic = new_topic()
    write(driver, peer, topic, b"v")

    async def producers() -> int:
        async with Admin(peer.bootstrap) as admin:
            leader = (await admin.describe_topics([topic]))[topic].partitions[0].leader_id
            request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
            answer = await admin.cluster.run(ask(leader, request, DescribeProducersResponse))
            return len(answer.topics[0].partitions[0].active_producers)

    if asyncio.run(producers()) == 0:
        raise Absent("idempotence is opt-in")


@behaviour("memory bound that waits (`buffer.memory`)")
def test_a_full_buffer_waits(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    topic = new_topic()
    sender = driver.sender(peer.bootstrap, **{"buffer.memory": 100_000, "linger.ms": 5})
    waits = [sender.send(topic, b"%06d" % number + b"x" * 1_000) for number in range(1_000)]
    assert [wait().offset for wait in waits] == list(range(1_000))
    sender.close()


@behaviour("metrics of the client")
def test_the_client_counts(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    assert driver.numbers(peer.bootstrap, new_topic()) > 0


# --- transactions ---


@behaviour("transactions, `read_committed`")
def test_aborted_records_are_not_read(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    topic = new_topic()
    sender = driver.sender(peer.bootstrap, **conf({"transactional.id": topic}))
    for word, commits in ((b"kept", True), (b"gone", False), (b"last", True)):
        sender.begin()
        sender.send(topic, word)()
        if commits:
            sender.commit()
        else:
            sender.abort()
    sender.close()
    member = driver.member(
        peer.bootstrap, assigned=[(topic, 0)], **conf({"isolation.level": "read_committed"})
    )
    assert values(read(member, 2)) == [b"kept", b"last"]
    member.close()
    member = driver.member(
        peer.bootstrap, assigned=[(topic, 0)], **conf({"isolation.level": "read_uncommitted"})
    )
    assert values(read(member, 3)) == [b"kept", b"gone", b"last"]
    member.close()


@behaviour("offsets of a group in a transaction")
def test_offsets_are_committed_with_the_transaction(
    driver: Driver, peer: Broker, new_topic: NewTopic
) -> None:
    source, target = new_topic(), new_topic()
    write(driver, peer, source, b"0", b"1")
    member = driver.member(peer.bootstrap, topics=[source], **conf({"group.id": source}))
    assert values(read(member, 2)) == [b"0", b"1"]
    sender = driver.sender(peer.bootstrap, **conf({"transactional.id": source}))
    for offset, commits in ((1, True), (2, False)):
        sender.begin()
        sender.send(target, b"v")()
        sender.send_offsets({(source, 0): offset}, member)
        if commits:
            sender.commit()
        else:
            sender.abort()
    sender.close()
    member.close()
    assert committed(peer, source) == {(source, 0): 1}


def committed(peer: Broker, group: str) -> dict[At, int]:
    async def ask_broker() -> dict[At, int]:
        async with Admin(peer.bootstrap) as admin:
            found = await admin.list_group_offsets(group, require_stable=True)
            return {(at.topic, at.partition): offset for at, offset in found.items()}

    return asyncio.run(ask_broker())


# --- groups ---


def join_two(driver: Driver, peer: Broker, topic: str, **settings: Any) -> tuple[Member, Member]:
    """Two members that share the four partitions of a topic."""
    named = conf({"group.id": topic, **settings})
    first = driver.member(peer.bootstrap, topics=[topic], **named)
    poll_until([first], lambda: len(first.assignment()) == 4)
    second = driver.member(peer.bootstrap, topics=[topic], **named)
    poll_until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2)
    return first, second


def poll_until(members: list[Member], condition: Callable[[], bool]) -> list[Got]:
    found: list[Got] = []
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, [each.assignment() for each in members]
        for member in members:
            found += member.poll()
    return found


def shares(driver: Driver, peer: Broker, topic: str, **settings: Any) -> None:
    first, second = join_two(driver, peer, topic, **settings)
    assert not first.assignment() & second.assignment()
    sender = driver.sender(peer.bootstrap)
    for wait in [sender.send(topic, b"%d" % number, partition=number) for number in range(4)]:
        wait()
    sender.close()
    found: list[Got] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < 4:
        assert time.monotonic() < deadline, found
        found += first.poll() + second.poll()
    assert sorted(values(found)) == [b"0", b"1", b"2", b"3"]
    second.commit()
    second.close()
    poll_until([first], lambda: len(first.assignment()) == 4)
    first.commit()
    first.close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
@behaviour("classic groups: range, roundrobin")
def test_a_classic_group_shares_a_topic(
    driver: Driver, peer: Broker, new_topic: NewTopic, strategy: str
) -> None:
    settings = {"partition.assignment.strategy": strategy}
    if isinstance(driver, Ours):
        settings["group.protocol"] = "classic"
    shares(driver, peer, new_topic(partitions=4), **settings)


@behaviour("cooperative rebalancing")
def test_a_cooperative_member_keeps_what_it_keeps(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    if isinstance(driver, Ours):
        settings["group.protocol"] = "classic"
    first, second = join_two(driver, peer, new_topic(partitions=4), **settings)
    assert set().union(*first.revoked) == second.assignment()
    first.close()
    second.close()


@behaviour("consumer protocol (KIP-848)")
def test_the_brokers_assignor_shares_a_topic(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=4)
    shares(driver, peer, topic, **conf({"group.protocol": "consumer"}))


@behaviour("static members")
def test_a_static_member_keeps_its_partitions(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    settings = conf({"group.id": topic, "group.instance.id": "one"})

    async def instances() -> list[str | None]:
        async with Admin(peer.bootstrap) as admin:
            found = (await admin.describe_groups([topic]))[topic]
            return [member.instance_id for member in found.members]

    for _ in range(2):
        member = driver.member(peer.bootstrap, topics=[topic], **settings)
        poll_until([member], lambda: len(member.assignment()) == 2)  # noqa: B023 - used at once
        member.close()
        assert asyncio.run(instances()) == ["one"]


@behaviour("rebalance listeners")
def test_a_listener_is_told(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=4)
    first, second = join_two(driver, peer, topic)
    everything = {(topic, number) for number in range(4)}
    assert set().union(*first.assigned) == everything
    assert set().union(*first.revoked) >= everything - first.assignment()
    assert set().union(*second.assigned) >= second.assignment()
    first.close()
    second.close()


@behaviour("subscription by pattern")
def test_a_pattern_finds_topics(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    stem = f"{new_topic()}p"
    topics = [new_topic(stem=stem), new_topic(stem=stem)]
    for topic in topics:
        write(driver, peer, topic, topic.encode())
    member = driver.member(peer.bootstrap, pattern=f"{stem}-.*", **conf({"group.id": stem}))
    assert sorted(values(read(member, 2))) == sorted(topic.encode() for topic in topics)
    member.close()


@behaviour("commits by hand: the next member goes on there")
def test_the_next_member_goes_on(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    topic = new_topic()
    for words in ((b"0", b"1"), (b"2",)):
        write(driver, peer, topic, *words)
        member = driver.member(peer.bootstrap, topics=[topic], **conf({"group.id": topic}))
        assert values(read(member, len(words))) == list(words)
        member.commit()
        member.close()
    assert committed(peer, topic) == {(topic, 0): 3}


# --- positions ---


@behaviour("assign, seek, seek by time")
def test_reading_goes_where_it_is_sent(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    topic = new_topic()
    sender = driver.sender(peer.bootstrap)
    for number in range(5):
        sender.send(topic, b"%d" % number, timestamp_ms=1_700_000_000_000 + number)()
    sender.close()
    member = driver.member(peer.bootstrap, assigned=[(topic, 0)])
    read(member, 5)
    member.seek((topic, 0), 3)
    assert values(read(member, 2)) == [b"3", b"4"]
    assert member.offset_for_time((topic, 0), 1_700_000_000_002) == 2
    assert member.offset_for_time((topic, 0), 1_700_000_000_009) is None or driver.name == "confluent-kafka"
    member.close()


@behaviour("pause and resume")
def test_a_paused_partition_waits(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    member = driver.member(peer.bootstrap, assigned=[(topic, 0), (topic, 1)])
    sender = driver.sender(peer.bootstrap)
    for number in range(2):
        sender.send(topic, b"%d" % number, partition=number)()
    read(member, 2)
    member.pause((topic, 0))
    for number in range(2):
        sender.send(topic, b"%d" % (number + 2), partition=number)()
    assert values(read(member, 1) + member.poll()) == [b"3"]
    member.resume((topic, 0))
    assert values(read(member, 1)) == [b"2"]
    sender.close()
    member.close()


# --- processing and tables ---


@behaviour("acknowledgement of single records")
def test_a_restart_repeats_nothing_that_was_finished(
    driver: Driver, peer: Broker, new_topic: NewTopic
) -> None:
    only_ours(driver, "acknowledgement of a record")
    topic = new_topic()
    write(driver, peer, topic, *(b"%d" % number for number in range(10)))
    done: list[bytes] = []

    async def run(slow: bytes | None) -> None:
        stop = asyncio.Event()

        async def handle(record: Record) -> None:
            if record.value == slow:
                await asyncio.Event().wait()  # stopped before it is finished
            done.append(record.value)
            if len(done) in (9, 10):
                stop.set()

        async with Consumer(
            peer.bootstrap, group=topic, topics=[topic], auto_offset_reset="earliest"
        ) as consumer:
            await consumer.process(handle, concurrency=10, order="none", stop=stop, drain_ms=100)

    asyncio.run(run(b"3"))
    assert sorted(done) == [b"%d" % number for number in range(10) if number != 3]
    asyncio.run(run(None))
    assert sorted(done) == [b"%d" % number for number in range(10)]


@behaviour("concurrent handlers, in order of each key")
def test_keys_are_handled_in_order(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    only_ours(driver, "processing")
    topic = new_topic()
    sender = driver.sender(peer.bootstrap)
    for wait in [sender.send(topic, b"%d" % n, key=b"%d" % (n % 3)) for n in range(30)]:
        wait()
    sender.close()
    order: dict[bytes, list[int]] = {}
    running = most = 0

    async def run() -> None:
        stop = asyncio.Event()

        async def handle(record: Record) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            order.setdefault(record.key, []).append(int(record.value))
            if sum(map(len, order.values())) == 30:
                stop.set()

        async with Consumer(
            peer.bootstrap, group=topic, topics=[topic], auto_offset_reset="earliest"
        ) as consumer:
            await consumer.process(handle, concurrency=8, order="key", stop=stop)

    asyncio.run(run())
    assert most > 1
    assert all(numbers == sorted(numbers) for numbers in order.values())


@behaviour("retries with a delay, dead letters")
def test_a_failing_record_becomes_a_dead_letter(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    only_ours(driver, "dead letters")
    topic, dead = new_topic(), new_topic()
    write(driver, peer, topic, b"good", b"bad", b"end")
    tries: list[bytes] = []

    async def run() -> None:
        stop = asyncio.Event()

        async def handle(record: Record) -> None:
            tries.append(record.value)
            if record.value == b"bad":
                raise ValueError("no")
            if record.value == b"end":
                stop.set()

        async with Consumer(
            peer.bootstrap, group=topic, topics=[topic], auto_offset_reset="earliest"
        ) as consumer:
            await consumer.process(
                handle, order="partition", retry=Retry(3, first_ms=1), dead_letters=dead, stop=stop
            )

    asyncio.run(run())
    assert tries == [b"good", b"bad", b"bad", b"bad", b"end"]
    member = driver.member(peer.bootstrap, assigned=[(dead, 0)])
    (letter,) = read(member, 1)
    assert letter.value == b"bad"
    assert dict(letter.headers)["__connect.errors.topic"] == topic.encode()
    member.close()


@behaviour("Arrow batches, a topic as a table")
def test_a_topic_is_a_table(driver: Driver, peer: Broker, new_topic: NewTopic) -> None:
    only_ours(driver, "Arrow")
    import barnabas

    topic = new_topic()
    write(driver, peer, topic, b"0", b"1")
    table = barnabas.read(topic, bootstrap_servers=peer.bootstrap).to_arrow()
    assert table.column("value").to_pylist() == [b"0", b"1"]

    async def batches() -> int:
        async with Consumer(peer.bootstrap, auto_offset_reset="earliest") as consumer:
            await consumer.assign([TopicPartition(topic, 0)])
            return sum([batch.num_rows async for batch in consumer.arrow(timeout_ms=200)])

    assert asyncio.run(batches()) == 2
