"""Recorded traffic: a real client through the proxy, and the replay on another broker."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from barnabas.cli.main import cli
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.ids import ZERO_UUID
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas.protocol.schema.headers import encode_request
from barnabas.testing.asking.inspection import kit_client
from barnabas.testing.broker import RunningBroker, run_broker
from barnabas.testing.cluster import run_cluster
from barnabas.testing.traffic.frames import framed, joined
from barnabas.testing.traffic.recorder import recording
from barnabas.testing.traffic.recording import BadRecording, Event, RecordingWriter, read_recording
from barnabas.testing.traffic.replay import replay
from tests.support.ports import free_port

PAST_THE_MARKER = 6
"""Offset after five records and the marker of their transaction."""


@contextmanager
def recorded(path: Path, to: str) -> Iterator[str]:
    """Record during the context; yields the proxy's address."""
    writer = RecordingWriter(path)
    opened: list[str] = []
    ready, loop, stopped = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with recording(Endpoint("127.0.0.1", 0), Endpoint.parse(to), writer) as bound:
            opened.append(str(bound))
            ready.set()
            await stopped.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(30)
    try:
        yield opened[0]
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()
        writer.close()


def work(bootstrap: str, topic: str) -> None:
    """A transaction and a consumer in a group."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(5):
        producer.produce(topic, str(number).encode(), key=b"k")
    producer.commit_transaction(30)
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0,
    })  # fmt: skip
    consumer.subscribe([topic])
    seen: list[bytes | None] = []
    while len(seen) < 5:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            seen.append(message.value())
    while consumer.position([Position(topic, 0)])[0].offset < PAST_THE_MARKER:
        assert consumer.poll(0.1) is None
    consumer.commit(asynchronous=False)
    consumer.close()
    assert seen == [b"0", b"1", b"2", b"3", b"4"]


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of `work` on the topic orders."""
    path = tmp_path_factory.mktemp("traffic") / "work.jsonl"
    with run_broker() as broker, recorded(path, broker.bootstrap) as proxy:
        broker.create_topic("orders")
        work(proxy, "orders")
    return path


def answers_of(broker: RunningBroker, path: Path) -> list[str]:
    return [str(each) for each in replay(path, broker.bootstrap, timeout_s=30).differences]


def test_a_replay_on_a_new_broker_gives_the_same_answers(traffic: Path) -> None:
    with run_broker() as broker:
        broker.create_topic("orders")
        report = replay(traffic, broker.bootstrap)
        assert [str(each) for each in report.differences] == []
        assert report.compared > 20
        assert [each.value for each in broker.records("orders", committed=True)] == [
            b"0", b"1", b"2", b"3", b"4",
        ]  # fmt: skip
        assert list(broker.committed("g").values()) == [PAST_THE_MARKER]


def test_a_replay_need_not_wait_for_the_interval_of_telemetry(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"

    async def ask_and_push(proxy: str, wait: Callable[[], None]) -> None:
        async with kit_client([Endpoint.parse(proxy)]) as cluster:
            channel = await cluster.any_channel()
            question = GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID)
            told = await channel.send(question, GetTelemetrySubscriptionsResponse)
            push = PushTelemetryRequest(
                client_instance_id=told.client_instance_id, subscription_id=told.subscription_id
            )
            for _ in range(2):
                assert (await channel.send(push, PushTelemetryResponse)).error_code == 0
                await asyncio.to_thread(wait)

    with run_broker(time="virtual") as broker, recorded(path, broker.bootstrap) as proxy:
        asyncio.run(ask_and_push(proxy, lambda: broker.time.advance("6m")))
    with run_broker() as broker:
        report = replay(path, broker.bootstrap)
        assert [str(each) for each in report.differences] == []
        pushes = broker.metrics_text()
    assert "kafka_client_metrics_plugin_export_total 1" in pushes, "the first has the ids of the replay"
    assert "kafka_client_metrics_throttle_total 1" in pushes, "the second comes too early"


async def test_a_recording_closes_every_connection_at_whatever_moment_it_ends(tmp_path: Path) -> None:
    sides: list[asyncio.StreamWriter] = []

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sides.append(writer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(broker, "127.0.0.1", 0)
    to = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
    for turns in range(40):
        kept = RecordingWriter(tmp_path / f"{turns}.jsonl")
        async with recording(Endpoint("127.0.0.1", 0), to, kept) as bound:
            _, client = await asyncio.open_connection(bound.host, bound.port)
            client.close()
            for _ in range(turns):
                await asyncio.sleep(0)
        kept.close()
        await client.wait_closed()
    server.close()
    for each in sides:
        each.close()
    gc.collect()  # a connection that was left open is an error here


def test_a_replay_shows_what_differs(traffic: Path) -> None:
    with run_broker() as broker:
        broker.create_topic("orders")
        broker.faults.add(api="EndTxn", error="INVALID_TXN_STATE", times=1)
        differences = answers_of(broker, traffic)
    assert any(
        "EndTxn" in each and "recorded no error, replayed 48 (INVALID_TXN_STATE)" in each
        for each in differences
    )


def test_a_lost_answer_is_a_difference(traffic: Path) -> None:
    with run_broker() as broker:
        broker.create_topic("orders")
        broker.faults.add(api="InitProducerId", drop="after", times=1)
        assert any(
            "connection: recorded stays open, replayed closed" in each for each in answers_of(broker, traffic)
        )


def test_a_replay_ends_if_its_requests_are_not_read(tmp_path: Path) -> None:
    """A recording that lacks all answers: the replay reads none, and a broker stops to read in the end."""
    path, requests = tmp_path / "cut.jsonl", 200
    writer = RecordingWriter(path)
    data = [PartitionProduceData(index=0, records=bytearray(200_000))]
    produce = ProduceRequest(
        acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    for number in range(requests):
        frame = joined(encode_request(ApiKey.PRODUCE, 9, number, "client", produce))
        writer.add(Event(connection=1, broker=0, is_answer=False, frame=frame, at_ms=0))
    writer.close()
    with socket.create_server(("127.0.0.1", 0)) as unread:
        report = replay(path, f"127.0.0.1:{unread.getsockname()[1]}", timeout_s=0.2)
    assert report.requests == requests
    (late,) = report.differences
    assert "request: recorded was read, replayed not in 0.2 s" in str(late)


def test_the_proxy_stands_in_front_of_every_broker(tmp_path: Path) -> None:
    path = tmp_path / "cluster.jsonl"
    with run_cluster(3) as cluster:
        topic = cluster.create_topic(partitions=6)
        with recorded(path, cluster.broker(1).bootstrap) as proxy:
            producer = Producer({"bootstrap.servers": proxy, "log_level": 0})
            for partition in range(6):
                producer.produce(topic, b"x", partition=partition)
            assert producer.flush(30) == 0
        leaders = {cluster.leader(topic, each) for each in range(6)}
        written = [each for each in cluster.brokers if each.requests(api="Produce")]
        assert len(written) == len(leaders) == 3
    assert {each.broker for each in read_recording(path)} == {0, 1, 2}


def test_the_commands_record_and_replay(traffic: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["replay", str(traffic)])
    assert "answers compared" in done.output
    nothing = CliRunner().invoke(cli, ["replay", str(traffic), "--to", "127.0.0.1:1"])
    assert nothing.exit_code == 1
    assert "cannot replay" in nothing.output
    unwritable = CliRunner().invoke(cli, ["record", str(tmp_path / "no" / "file"), "--to", "127.0.0.1:1"])
    assert "cannot write" in unwritable.output
    assert traffic.stat().st_mode & 0o077 == 0, "records may be confidential"


def test_a_recording_on_a_full_disk_ends_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen = Endpoint("127.0.0.1", free_port())

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def send_until_it_ends() -> None:
        while True:
            try:
                with socket.create_connection(listen, timeout=30) as client:
                    client.sendall(framed(b"a request"))
                    client.recv(1)
                    return
            except ConnectionRefusedError:
                continue  # it does not listen yet

    monkeypatch.setattr(RecordingWriter, "_add", fail)
    with socket.create_server(("127.0.0.1", 0)) as broker:
        client = threading.Thread(target=send_until_it_ends)
        client.start()
        arguments = ["record", str(tmp_path / "full.jsonl"), "--listen", str(listen)]
        done = CliRunner().invoke(cli, [*arguments, "--to", str(Endpoint(*broker.getsockname()))])
        client.join(30)
    assert done.exit_code == 1
    assert "the recording ended early: No space left on device; 0 requests and answers in" in done.output
    assert list(read_recording(tmp_path / "full.jsonl")) == []


def test_ids_and_epochs_are_those_of_their_producers_and_members(tmp_path: Path) -> None:
    """Two have the same number in the recording, and different ones in the replay."""
    path = tmp_path / "two.jsonl"

    def begun(bootstrap: str, transactional_id: str) -> Producer:
        producer = Producer({
            "bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0,
        })  # fmt: skip
        producer.init_transactions(30)
        producer.begin_transaction()
        return producer

    with run_broker() as broker:
        broker.create_topic("orders")
        with recorded(path, broker.bootstrap) as proxy:
            both = [begun(proxy, each) for each in ("a", "b")]
            for each in both:
                each.produce("orders", b"paid")
                assert each.flush(30) == 0
            for each in both:
                each.commit_transaction(30)
    with run_broker() as broker:
        broker.create_topic("orders")
        for transactional_id in ("other", "a"):
            begun(broker.bootstrap, transactional_id)
        assert answers_of(broker, path) == []
        assert broker.values("orders", committed=True) == [b"paid", b"paid"]


def test_no_password_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "sasl.jsonl"
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            ' username="a" password="a" user_a="a" user_ann="s3cr3t-w0rd";'
        ),
    }
    with run_broker(settings) as broker, recorded(path, broker.bootstrap) as proxy:
        producer = Producer({
            "bootstrap.servers": proxy, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
            "sasl.username": "ann", "sasl.password": "s3cr3t-w0rd", "log_level": 0,
        })  # fmt: skip
        producer.produce("orders", b"x")
        assert producer.flush(30) == 0
    frames = [each.frame for each in read_recording(path)]
    assert b"" in frames
    assert not any(b"s3cr3t-w0rd" in each for each in frames)


HEAD = '{"barnabas": "recording", "format": 1}'


@pytest.mark.parametrize(
    "lines",
    [
        [""],
        ["nothing"],
        ["{}"],
        ['{"barnabas": "recording", "format": 2}'],
        [HEAD, "[]"],
        [HEAD, '{"connection": -1, "broker": 0, "request": "", "at_ms": 0}'],
        [HEAD, '{"connection": 1, "broker": 0, "request": "!", "at_ms": 0}'],
        [HEAD, "[" * 100_000],
    ],
)
def test_a_file_that_is_no_recording_is_refused(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(BadRecording) as refused:
        list(read_recording(path))
    assert ("is not a recording" in str(refused.value)) == (lines[0] not in ("", HEAD))
