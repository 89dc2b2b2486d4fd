"""A disk that fails takes its own partitions offline, and nothing else."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from barnabas.client.aio.channel import Channel
from barnabas.core.errors import KafkaError, KafkaStorageError, LeaderNotAvailable
from barnabas.core.files import DataFile, RealFile, RealFiles
from barnabas.core.reporting.metrics import render_prometheus
from barnabas.node.lifecycle import BrokerState
from barnabas.node.main import BrokerHalted, serve_broker
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.support.in_process import InProcessBroker, fail_in, in_process_broker, state_of
from tests.support.power_cut_files import PowerCutFiles

NO_SPACE = OSError(errno.ENOSPC, "No space left on device")
INPUT_OUTPUT = OSError(errno.EIO, "Input/output error")


def disks(*directories: Path) -> PowerCutFiles:
    files = PowerCutFiles()
    for directory in directories:
        files.make_lasting_directory(str(directory))
    return files


def home_of(broker: InProcessBroker, partition: int) -> str:
    replicas = broker.broker._replicas
    assert replicas is not None
    return replicas.partition("topic", partition).log.log_directory.path


@pytest.mark.parametrize("error", [NO_SPACE, INPUT_OUTPUT])
async def test_one_failed_directory_takes_only_its_partitions_offline(tmp_path: Path, error: OSError) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    files = disks(good, bad)
    async with in_process_broker(good, bad, files=files) as broker:
        assert await broker.create_topic("topic", 2) == 0
        (lost,) = [index for index in (0, 1) if home_of(broker, index) == str(bad)]
        kept = 1 - lost
        for index in (0, 1):
            assert (await broker.produce("topic", b"before", partition=index)).error_code == 0

        files.before = fail_in(bad, ["write"], error)
        refused = await broker.produce("topic", b"refused", partition=lost)
        assert refused.error_code == KafkaStorageError.code
        assert refused.error_message is not None
        assert str(error.strerror) in refused.error_message
        files.before = None

        assert (await broker.produce("topic", b"still", partition=lost)).error_code == KafkaStorageError.code
        assert (await broker.fetch("topic", 0, partition=lost)).error_code == KafkaStorageError.code
        assert (await broker.produce("topic", b"after", partition=kept)).error_code == 0
        assert await broker.read_all("topic", kept) == [b"before", b"after"]

        shown = {each.partition_index: each for each in (await broker.metadata("topic")).partitions}
        assert (shown[lost].error_code, shown[lost].leader_id) == (LeaderNotAvailable.code, -1)
        assert shown[lost].offline_replicas == [broker.broker.broker_id]
        assert (shown[kept].error_code, shown[kept].leader_id) == (0, broker.broker.broker_id)
        described = await broker.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        assert {each.log_dir: each.error_code for each in described.results} == {
            str(good): 0,
            str(bad): KafkaStorageError.code,
        }

        assert await broker.create_topic("elsewhere", 2) == 0
        for index in (0, 1):
            assert (await broker.produce("elsewhere", b"new", partition=index)).error_code == 0
    async with in_process_broker(good, bad, files=files) as broker:
        assert await broker.read_all("topic", lost) == [b"before"], "the disk works again after a restart"
        assert await broker.read_all("topic", kept) == [b"before", b"after"]


@pytest.mark.parametrize("size_bytes", [100, 200_000])
async def test_one_unreadable_log_is_out_of_service_alone(tmp_path: Path, size_bytes: int) -> None:
    """A bad sector says nothing of the other logs of its directory. Small and large answers are read in
    different ways: into memory, and by sendfile."""
    files = disks(tmp_path)
    async with in_process_broker(tmp_path, files=files) as broker:
        assert await broker.create_topic("topic", 2) == 0
        for index in (0, 1):
            assert (await broker.produce("topic", bytes(size_bytes), partition=index)).error_code == 0

        def refuse(operation: str, path: str) -> None:
            if operation == "read" and path.endswith("topic-0/00000000000000000000.log"):
                raise INPUT_OUTPUT

        files.before = refuse
        with pytest.raises(KafkaError):
            await broker.fetch("topic", 0, partition=0)  # the size of the answer had left already
        broker.channel = await Channel.connect(broker.address)
        assert (await broker.fetch("topic", 0, partition=0)).error_code == KafkaStorageError.code
        refused = await broker.produce("topic", b"refused", partition=0)
        assert refused.error_code == KafkaStorageError.code
        shown = {each.partition_index: each for each in (await broker.metadata("topic")).partitions}
        assert (shown[0].leader_id, shown[0].offline_replicas) == (-1, [broker.broker.broker_id])
        assert shown[1].leader_id == broker.broker.broker_id
        assert await broker.read_all("topic", 1) == [bytes(size_bytes)]
        described = await broker.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        assert [each.error_code for each in described.results] == [0]
        files.before = None
    async with in_process_broker(tmp_path, files=files) as broker:
        assert await broker.read_all("topic", 0) == [bytes(size_bytes)], "it can be read after a restart"
        assert (await broker.produce("topic", b"more")).base_offset == 1


async def test_a_disk_that_fills_up_in_the_middle_of_a_write_loses_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    files = disks(tmp_path)
    async with in_process_broker(tmp_path, files=files) as broker:
        assert await broker.create_topic("topic") == 0
        for number in range(5):
            assert (await broker.produce("topic", b"%d" % number)).error_code == 0
        files.write_limit_bytes = 40
        refused = await broker.produce("topic", b"cut in two")
        assert refused.error_code == KafkaStorageError.code
        assert refused.base_offset == -1
    files.cut_power()
    async with in_process_broker(tmp_path, files=files) as broker:
        # Nothing was flushed, so a power cut may take the tail; what is left is whole and in order.
        found = await broker.read_all("topic")
        assert found == [b"%d" % number for number in range(len(found))]
        assert (await broker.produce("topic", b"again")).base_offset == len(found)


async def test_a_full_disk_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    files = disks(tmp_path)
    async with in_process_broker(tmp_path, files=files, log_flush_interval_messages=1) as broker:
        assert await broker.create_topic("topic") == 0
        for number in range(5):
            assert (await broker.produce("topic", b"%d" % number)).error_code == 0
        files.before = fail_in(tmp_path, ["write", "sync"], NO_SPACE)
        assert (await broker.produce("topic", b"refused")).error_code == KafkaStorageError.code
        files.before = None
    files.cut_power()
    async with in_process_broker(tmp_path, files=files) as broker:
        assert (await broker.read_all("topic"))[:5] == [b"%d" % number for number in range(5)]


class FillingFiles(RealFiles):
    """A disk that takes a part of a write, and says why with the next: so a full one behaves."""

    is_full = False

    def open(self, path: str, *, create: bool = False) -> DataFile:
        opened = super().open(path, create=create)
        file = _FillingFile(os.dup(opened.fileno()))
        file.disk = self
        return file


class _FillingFile(RealFile):
    __slots__ = ("disk", "is_cut")
    disk: FillingFiles

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> int:
        if not self.disk.is_full:
            return super().write_at(position, data)
        if getattr(self, "is_cut", False):
            raise NO_SPACE
        self.is_cut = True
        return super().write_at(position, bytes(data)[:20])


async def test_a_broker_whose_last_disk_is_full_says_so_and_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FillingFiles()
    client = InProcessBroker([tmp_path], files)
    broker = client.broker
    serving = asyncio.create_task(serve_broker(broker, asyncio.Event()))
    async with asyncio.timeout(60):
        while broker.lifecycle.state is not BrokerState.RUNNING:  # noqa: ASYNC110 - there is no event to await
            await asyncio.sleep(0.01)
        client.channel = await Channel.connect(client.address)
        assert await client.create_topic("topic") == 0
        files.is_full = True
        refused = await client.produce("topic", bytes(5_000))
        assert refused.error_code == KafkaStorageError.code
        assert "No space left on device" in (refused.error_message or "")
        page = render_prometheus(broker.metrics)
        assert "kafka_offline_log_directories 1\n" in page
        assert f'kafka_log_directory_offline{{log_directory="{tmp_path}"}} 1\n' in page
        with pytest.raises(BrokerHalted, match=r"no log directory is left.*No space left on device"):
            await serving
        client.channel.close()
    assert len([each for each in caplog.messages if "goes offline: " in each]) == 1
    assert state_of(broker) is BrokerState.NOT_RUNNING


@pytest.mark.parametrize("acks", [1, -1])
async def test_an_fsync_that_fails_is_told_to_the_producer_at_once(tmp_path: Path, acks: int) -> None:
    files = disks(tmp_path)
    async with in_process_broker(tmp_path, files=files, log_flush_interval_messages=1) as broker:
        assert await broker.create_topic("topic") == 0
        files.before = fail_in(tmp_path, ["sync"], INPUT_OUTPUT)
        refused = await broker.produce("topic", acks=acks, timeout_ms=600_000)
        assert refused.error_code == KafkaStorageError.code
        files.before = None


async def test_a_directory_that_cannot_be_used_at_start_is_offline(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    bad.write_text("this is no directory")
    async with in_process_broker(good, bad) as broker:
        assert await broker.create_topic("topic", 2) == 0
        assert {home_of(broker, 0), home_of(broker, 1)} == {str(good)}
        described = await broker.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        assert {each.log_dir: each.error_code for each in described.results} == {
            str(good): 0,
            str(bad): KafkaStorageError.code,
        }


async def test_a_directory_that_breaks_between_two_starts_keeps_its_partitions_offline(
    tmp_path: Path,
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    files = disks(good, bad)
    async with in_process_broker(good, bad, files=files) as broker:
        assert await broker.create_topic("topic", 2) == 0
        (lost,) = [index for index in (0, 1) if home_of(broker, index) == str(bad)]
        for index in (0, 1):
            assert (await broker.produce("topic", b"kept", partition=index)).error_code == 0
    files.before = fail_in(bad, ["open", "read", "list", "write"], INPUT_OUTPUT)
    async with in_process_broker(good, bad, files=files) as broker:
        assert await broker.read_all("topic", 1 - lost) == [b"kept"]
        refused = await broker.produce("topic", b"no empty log elsewhere", partition=lost)
        assert refused.error_code != 0
        shown = {each.partition_index: each for each in (await broker.metadata("topic")).partitions}
        assert shown[lost].leader_id == -1
    files.before = None
    async with in_process_broker(good, bad, files=files) as broker:
        assert await broker.read_all("topic", lost) == [b"kept"]


async def test_a_topic_deleted_while_a_directory_is_broken_does_not_come_back_with_it(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    files = disks(good, bad)
    async with in_process_broker(good, bad, files=files) as broker:
        assert await broker.create_topic("topic", 2) == 0
        assert {home_of(broker, 0), home_of(broker, 1)} == {str(good), str(bad)}
    files.before = fail_in(bad, ["open", "read", "list", "write"], INPUT_OUTPUT)
    async with in_process_broker(good, bad, files=files) as broker:
        request = DeleteTopicsRequest(topic_names=["topic"], timeout_ms=1_000)
        deleted = await broker.ask(request, DeleteTopicsResponse, version_max=5)
        assert [each.error_code for each in deleted.responses] == [0]
    async with in_process_broker(good, bad, files=files) as broker:
        assert (await broker.metadata("topic")).error_code != 0
    files.before = None
    async with in_process_broker(good, bad, files=files) as broker:
        assert (await broker.metadata("topic")).error_code != 0
        assert await broker.create_topic("topic") == 0
        assert await broker.read_all("topic") == []


async def test_a_garbled_log_is_out_of_service_and_everything_else_in_its_directory_serves(
    tmp_path: Path,
) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert await broker.create_topic("topic", 2) == 0
        for index in (0, 1):
            assert (await broker.produce("topic", b"kept", partition=index)).error_code == 0
            assert (await broker.produce("topic", b"kept", partition=index)).error_code == 0
    segment = tmp_path / "topic-0" / f"{0:020d}.log"
    content = segment.read_bytes()
    segment.write_bytes(content[: len(content) // 2] + bytes([9]) * (len(content) // 2))
    async with in_process_broker(tmp_path) as broker:
        assert await broker.read_all("topic", 1) == [b"kept", b"kept"]
        refused = await broker.produce("topic", b"no empty log instead", partition=0)
        assert refused.error_code == KafkaStorageError.code
        assert (await broker.fetch("topic", 0, partition=0)).error_code == KafkaStorageError.code
        shown = {each.partition_index: each for each in (await broker.metadata("topic")).partitions}
        assert (shown[0].leader_id, shown[0].offline_replicas) == (-1, [broker.broker.broker_id])
        assert shown[1].leader_id == broker.broker.broker_id
        assert "kafka_offline_replicas 1" in render_prometheus(broker.broker.metrics)
    segment.write_bytes(content)
    async with in_process_broker(tmp_path) as broker:
        assert await broker.read_all("topic", 0) == [b"kept", b"kept"], "repaired, it serves again"


async def test_a_topic_with_a_garbled_log_can_be_deleted_and_made_again(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert await broker.create_topic("topic") == 0
        assert (await broker.produce("topic", b"lost")).error_code == 0
    segment = tmp_path / "topic-0" / f"{0:020d}.log"
    segment.write_bytes(bytes([9]) * segment.stat().st_size)
    async with in_process_broker(tmp_path) as broker:
        request = DeleteTopicsRequest(topic_names=["topic"], timeout_ms=30_000)
        assert (await broker.ask(request, DeleteTopicsResponse, 5)).responses[0].error_code == 0
        assert await broker.create_topic("topic") == 0
        assert (await broker.produce("topic", b"new")).base_offset == 0
