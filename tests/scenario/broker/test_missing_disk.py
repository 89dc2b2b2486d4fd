"""A log directory whose disk is not mounted at the start is offline, and no new one takes its place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from barnabas.core.errors import InvalidConfig, KafkaStorageError, LeaderNotAvailable
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.support.embedded_cluster import cluster_broker, shared_store
from tests.support.in_process import InProcessBroker, in_process_broker

PARTITIONS = 4


def partitions_in(directory: Path, topic: str = "topic") -> set[int]:
    return {int(path.name.removeprefix(f"{topic}-")) for path in directory.glob(f"{topic}-?")}


async def write_everywhere(broker: InProcessBroker, value: bytes) -> dict[int, int]:
    """The error codes of a write to each partition."""
    return {
        index: (await broker.produce("topic", value, partition=index)).error_code
        for index in range(PARTITIONS)
    }


@pytest.mark.parametrize("mount_point", ["an empty directory", "no directory", "a fresh file system"])
async def test_partitions_of_a_disk_that_is_not_mounted_wait_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mount_point: str
) -> None:
    kept, disk = tmp_path / "kept", tmp_path / "disk"
    async with in_process_broker(kept, disk) as broker:
        assert await broker.create_topic("topic", PARTITIONS) == 0
        assert set((await write_everywhere(broker, b"before")).values()) == {0}
    lost = partitions_in(disk)
    assert len(lost) == PARTITIONS // 2
    disk.rename(tmp_path / "unmounted")
    if mount_point != "no directory":
        disk.mkdir()
    if mount_point == "a fresh file system":
        (disk / "lost+found").mkdir()

    async with in_process_broker(kept, disk) as broker:
        assert f"log directory {disk} goes offline" in caplog.text
        assert "Mount its disk and start the broker again" in caplog.text
        written = await write_everywhere(broker, b"meanwhile")
        assert {index for index, error in written.items() if error == 0} == set(range(PARTITIONS)) - lost
        shown = {each.partition_index: each for each in (await broker.metadata("topic")).partitions}
        assert {shown[index].error_code for index in lost} == {LeaderNotAvailable.code}
        described = await broker.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        assert {each.log_dir: each.error_code for each in described.results} == {
            str(kept): 0,
            str(disk): KafkaStorageError.code,
        }
        assert await broker.create_topic("new", 2) == 0
    assert not disk.exists() or [path.name for path in disk.iterdir()] in ([], ["lost+found"])

    shutil.rmtree(disk, ignore_errors=True)
    (tmp_path / "unmounted").rename(disk)
    async with in_process_broker(kept, disk) as broker:
        for index in range(PARTITIONS):
            expected = [b"before"] if index in lost else [b"before", b"meanwhile"]
            assert await broker.read_all("topic", index) == expected
        assert set((await write_everywhere(broker, b"after")).values()) == {0}


async def test_a_disk_that_was_replaced_is_used_when_the_operator_says_so(tmp_path: Path) -> None:
    kept, disk = tmp_path / "kept", tmp_path / "disk"
    async with in_process_broker(kept, disk) as broker:
        assert await broker.create_topic("topic", PARTITIONS) == 0
    shutil.rmtree(disk)
    disk.mkdir()
    shutil.copy(kept / "meta.properties", disk)
    async with in_process_broker(kept, disk) as broker:
        assert set((await write_everywhere(broker, b"again")).values()) == {0}


async def test_a_directory_that_is_added_is_used_at_once(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    async with in_process_broker(one) as broker:
        assert await broker.create_topic("topic") == 0
    async with in_process_broker(one, two, three) as broker:
        assert await broker.create_topic("more", 5) == 0
    assert partitions_in(two, "more")
    assert partitions_in(three, "more")
    listed = [(each / ".log-dirs").read_text().splitlines() for each in (one, two, three)]
    assert listed == [[str(one), str(two), str(three)]] * 3


async def test_no_empty_store_takes_the_place_of_one_on_a_disk_that_is_not_mounted(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with in_process_broker(first, second) as broker:
        assert await broker.create_topic("topic", 2) == 0
    first.rename(tmp_path / "unmounted")
    first.mkdir()
    with pytest.raises(InvalidConfig, match=r"holds the coordination store, and now it is empty"):
        await InProcessBroker([first, second]).broker.startup()
    assert list(first.iterdir()) == []


async def test_the_directory_with_the_store_comes_first(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with in_process_broker(first, second) as broker:
        assert await broker.create_topic("topic", 2) == 0
    with pytest.raises(InvalidConfig, match=r"name .*first first in log\.dirs"):
        await InProcessBroker([second, first]).broker.startup()
    async with in_process_broker(first, second) as broker:
        assert len((await broker.metadata("topic")).partitions) == 2


async def test_a_member_of_a_cluster_goes_on_without_any_of_its_disks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    settings = {"log_dirs": f"{first},{second}"}
    async with shared_store(tmp_path, monkeypatch):
        broker = cluster_broker(first, 1, **settings)
        await broker.start()
        assert await broker.create_topic("topic", 2) == 0
        await broker.stop()
        first.rename(tmp_path / "unmounted")
        broker = cluster_broker(first, 1, **settings)
        await broker.start()
        errors = [(await broker.produce("topic", b"x", partition=index)).error_code for index in (0, 1)]
        assert sorted(error == 0 for error in errors) == [False, True]
        await broker.stop()
    assert not first.exists()
