"""Replicas move between the log directories of a broker, under way and after crashes."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from barnabas.core.errors import LogDirNotFound, ReplicaNotAvailable
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.storage.files.names import SUPERSEDED
from tests.support.in_process import InProcessBroker, in_process_broker
from tests.support.waiting import PATIENCE_S


async def move(broker: InProcessBroker, path: Path, topic: str = "topic") -> int:
    wanted = AlterReplicaLogDir(path=str(path), topics=[AlterReplicaLogDirTopic(name=topic, partitions=[0])])
    answer = await broker.ask(AlterReplicaLogDirsRequest(dirs=[wanted]), AlterReplicaLogDirsResponse)
    return answer.results[0].partitions[0].error_code


def homes(*directories: Path) -> list[Path]:
    return [each for each in directories if (each / "topic-0").exists()]


async def until_in(target: Path, other: Path) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while homes(target, other) != [target]:  # noqa: ASYNC110 - files have no event to await
            await asyncio.sleep(0.01)


async def test_a_log_moves_while_it_is_written_and_read(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    values = [b"%d" % number for number in range(60)]
    async with in_process_broker(one, two) as broker:
        await broker.create_topic("topic", segment_bytes=2_000)
        for value in values[:40]:
            await broker.produce("topic", value)
        (source,) = homes(one, two)
        target = two if source == one else one
        assert await move(broker, target) == 0
        for value in values[40:]:
            await broker.produce("topic", value)
        await until_in(target, source)
        assert await broker.read_all("topic") == values
        await broker.produce("topic", b"after")
    async with in_process_broker(one, two) as broker:
        assert await broker.read_all("topic") == [*values, b"after"]
        assert homes(one, two) == [target]


async def test_a_log_moves_though_its_segments_may_be_smaller_now(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    values = [b"%d" % number * (50_000 if number % 5 == 0 else 1_000) for number in range(10, 40)]
    async with in_process_broker(one, two) as broker:
        await broker.create_topic("topic")
        for value in values:
            await broker.produce("topic", value)
        setting = AlterableConfig(name="segment.bytes", config_operation=0, value="20000")
        altered = AlterConfigsResource(resource_type=2, resource_name="topic", configs=[setting])
        answer = await broker.ask(
            IncrementalAlterConfigsRequest(resources=[altered]), IncrementalAlterConfigsResponse
        )
        assert answer.responses[0].error_code == 0
        (source,) = homes(one, two)
        target = two if source == one else one
        assert await move(broker, target) == 0
        await until_in(target, source)
        assert await broker.read_all("topic") == values
        assert len(list((target / "topic-0").glob("*.log"))) > 6


async def test_impossible_moves_say_why(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path / "one", tmp_path / "two") as broker:
        await broker.create_topic("topic")
        assert await move(broker, tmp_path / "three") == LogDirNotFound.code
        assert await move(broker, tmp_path / "two", "nothing") == ReplicaNotAvailable.code
        (home,) = homes(tmp_path / "one", tmp_path / "two")
        assert await move(broker, home) == 0
        assert homes(tmp_path / "one", tmp_path / "two") == [home]


async def test_a_crash_between_the_names_keeps_the_copy(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with in_process_broker(one, two) as broker:
        await broker.create_topic("topic")
        await broker.produce("topic", b"value")
    (source,) = homes(one, two)
    target = two if source == one else one
    shutil.copytree(source / "topic-0", target / "topic-0")
    shutil.copytree(source / "topic-0", target / f"topic-0.{'a' * 32}-future")
    (source / "topic-0" / SUPERSEDED).write_bytes(b"")
    async with in_process_broker(one, two) as broker:
        assert homes(one, two) == [target]
        assert await broker.read_all("topic") == [b"value"]
        async with asyncio.timeout(PATIENCE_S):
            while list(target.glob("*-future")):  # noqa: ASYNC110 - files have no event to await
                await asyncio.sleep(0.01)


async def test_a_crash_before_the_names_keeps_the_log(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with in_process_broker(one, two) as broker:
        await broker.create_topic("topic")
        await broker.produce("topic", b"value")
    (source,) = homes(one, two)
    (source / "topic-0" / SUPERSEDED).write_bytes(b"")
    async with in_process_broker(one, two) as broker:
        assert await broker.read_all("topic") == [b"value"]
        assert not (source / "topic-0" / SUPERSEDED).exists()
