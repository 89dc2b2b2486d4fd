"""File sink: with any checkpoint and any path, no row is lost or written twice."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.synced_files import SyncedFiles
from tests.support.topics import produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ids = Callable[[], list[int]]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def ids(spark: SparkSession, lake: Path) -> Ids:
    """Rows that a reader finds in the directory."""
    return lambda: sorted(row["id"] for row in spark.read.parquet(str(lake)).collect())


def copying(source: str, lake: Path, **sink: Any) -> dict[str, Any]:
    return {
        "name": "copy",
        "source": {
            "type": "topic",
            "topics": source,
            "schema": "id BIGINT, day INT",
            "max_offsets_per_trigger": 2,
        },
        "sink": {"type": "files", "path": str(lake), **sink},
    }


def test_a_new_checkpoint_adds_to_a_path_that_was_used(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, tmp_path: Path, lake: Path, ids: Ids
) -> None:
    """Offsets that are reset, the same file run elsewhere, another pipeline, one that is made again."""
    source, other = new_topic(), new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(6)])
    produce(bootstrap, other, [{"id": 100}])
    spec = copying(source, lake)
    run_spec(spec)
    assert ids() == [*range(6)]
    run_spec(spec, generation=1)
    assert ids() == sorted([*range(6)] * 2)
    run_spec({**copying(other, lake), "name": "other"})
    assert ids() == sorted([*range(6)] * 2 + [100])
    shutil.rmtree(tmp_path / "state" / "copy")
    run_spec(spec)
    assert ids() == sorted([*range(6)] * 3 + [100])
    produce(bootstrap, other, [{"id": 101}])
    run_spec({**copying(other, lake), "name": "other"})
    assert ids() == sorted([*range(6)] * 3 + [100, 101])


def test_a_batch_that_was_written_is_not_written_again(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, tmp_path: Path, lake: Path, ids: Ids
) -> None:
    source, other = new_topic(), new_topic()
    produce(bootstrap, source, [{"id": at, "day": at % 2} for at in range(4)])
    produce(bootstrap, other, [{"id": 100, "day": 7}])
    spec = copying(source, lake, partition_by=["day"])
    run_spec(spec)
    run_spec({**copying(other, lake, partition_by=["day"]), "name": "other"})
    # As after a crash between the log's entry and Spark's own note: the last batch is run again.
    commits = tmp_path / "state" / "copy" / "0" / "checkpoint" / "commits"
    for file in commits.iterdir():
        if file.name.lstrip(".").startswith("1"):
            file.unlink()
    produce(bootstrap, source, [{"id": at, "day": 1} for at in range(4, 6)])
    run_spec(spec)
    assert ids() == [*range(6), 100]
    assert {each.name for each in lake.glob("day=*")} == {"day=0", "day=1", "day=7"}
    assert not [*lake.glob("_barnabas_staging/*")]


def test_of_two_drivers_that_run_the_same_query_one_writes_the_batch(
    spark: SparkSession, lake: Path, ids: Ids
) -> None:
    from barnabas.pipelines.spark.sinks.file_log import FileLog

    elder, younger = FileLog(spark, str(lake)), FileLog(spark, str(lake))
    rows = spark.range(3).coalesce(1)
    elder.add(rows.write.format("parquet"), "query", 0)
    younger.add(rows.write.format("parquet"), "query", 0)
    younger.add(rows.write.format("parquet"), "query", 1)
    elder.add(rows.write.format("parquet"), "query", 1)
    for batch in range(2, 13):  # past the log's first compaction
        younger.add(rows.write.format("parquet"), "query", batch)
    elder.add(rows.write.format("parquet"), "query", 2)
    elder.add(rows.write.format("parquet"), "other", 0)
    assert ids() == sorted([0, 1, 2] * 14)
    assert len([*lake.glob("*.parquet")]) == 14


def test_offsets_and_rows_are_on_disk_before_the_log_lists_a_batch(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, tmp_path: Path, lake: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A power failure may take whatever is not: the batch would count, without its rows or its end."""
    source = new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(6)])
    synced = SyncedFiles(monkeypatch)
    run_spec(copying(source, lake))
    listed = min(at for at, path in enumerate(synced.paths) if path.parent == lake / "_spark_metadata")
    query = json.loads(next((tmp_path / "state").glob("*/0/checkpoint/metadata")).read_text())["id"]
    rows = [*lake.rglob(f"part-*-{query}-0-*")]
    plan = next((tmp_path / "state").glob("*/0/checkpoint/offsets/0"))
    assert rows
    wanted = [plan, *rows, *(each.parent for each in rows)]
    assert [each for each in wanted if each not in synced.paths[:listed]] == []


@pytest.mark.kill_matrix
@pytest.mark.parametrize("is_entered", [False, True])
def test_a_driver_that_dies_at_the_logs_entry_leaves_every_row_once(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, lake: Path, ids: Ids,
    monkeypatch: pytest.MonkeyPatch, is_entered: bool,
) -> None:  # fmt: skip
    from barnabas.pipelines.spark.context.run_context import PipelineFailed
    from barnabas.pipelines.spark.sinks import file_log
    from barnabas.pipelines.spark.state.log_entry import create_entry

    deaths = [1]

    def dying(*arguments: Any) -> bool:
        if deaths:
            deaths.pop()
            if is_entered:
                create_entry(*arguments)
            raise RuntimeError("killed")
        return create_entry(*arguments)

    monkeypatch.setattr(file_log, "create_entry", dying)
    source = new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(6)])
    with pytest.raises(PipelineFailed, match="killed"):
        run_spec(copying(source, lake))
    run_spec(copying(source, lake))
    assert ids() == [*range(6)]


def test_every_entry_of_several_writers_is_in_the_log(spark: SparkSession, lake: Path) -> None:
    """Three pipelines that do nothing but make entries, past several compactions."""
    from barnabas.pipelines.spark.sinks.file_log import FileLog

    lake.mkdir()
    entered: list[str] = []
    failures: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            log = FileLog(spark, str(lake))
            log._checked = -1
            for batch in range(15):
                tag = f"writer{writer}-{batch}"
                name = f"part-00000-{tag}-aaaaaaaa.json"
                (lake / name).write_text('{"id": 1}\n')
                status = log._files.getFileStatus(log._inside(name))
                assert log._enter(log._open(), [status], tag)
                entered.append(name)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    seen = sorted(Path(each).name for each in spark.read.json(str(lake)).inputFiles())
    assert seen == sorted(entered)
    assert len(entered) == 45


def test_a_rename_that_does_not_overwrite_takes_a_number_once(spark: SparkSession, lake: Path) -> None:
    """As on HDFS; a local disk stands in for it."""
    from barnabas.pipelines.spark.sinks.file_log import FileLog
    from barnabas.pipelines.spark.state.log_entry import rename_entry

    log = FileLog(spark, str(lake))
    entry = log._inside("_spark_metadata/0")
    assert rename_entry(spark, log._files, entry, "first")
    assert not rename_entry(spark, log._files, entry, "second")
    assert (lake / "_spark_metadata" / "0").read_text() == "first"
    assert [each.name for each in (lake / "_spark_metadata").iterdir() if ".tmp" in each.name] == []


def test_files_that_no_pipeline_wrote_are_not_hidden_by_one(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, spark: SparkSession, lake: Path, ids: Ids
) -> None:
    from barnabas.pipelines.spark.context.run_context import PipelineFailed

    source = new_topic()
    produce(bootstrap, source, [{"id": 1}])
    spark.range(3).write.parquet(str(lake))
    with pytest.raises(PipelineFailed, match="which no pipeline wrote"):
        run_spec(copying(source, lake))
    assert ids() == [0, 1, 2]


def test_a_large_batch_is_a_file_of_each_task_and_a_small_one_a_single_file(
    run_spec: RunSpec,
    bootstrap: str,
    new_topic: TopicFactory,
    lake: Path,
    ids: Ids,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = new_topic(2)
    spec = copying(source, lake)
    spec["source"]["max_offsets_per_trigger"] = 1_000_000

    def files_of_a_run(first: int, count: int) -> int:
        before = len([*lake.glob("part-*")])
        for parity, key in enumerate((b"a", b"d")):  # keys of different partitions
            values = [{"id": at} for at in range(first + parity, first + count, 2)]
            produce(bootstrap, source, values, key=key)
        run_spec(spec)
        assert ids() == [*range(first + count)]
        return len([*lake.glob("part-*")]) - before

    many = 30_000  # small ranges share a task
    monkeypatch.setattr("barnabas.pipelines.spark.sinks.files.RECORDS_PER_FILE", 10_000)
    assert files_of_a_run(0, many) == 2  # each of two tasks
    assert files_of_a_run(many, 6) == 1
    assert files_of_a_run(many + 6, many) == 2
    monkeypatch.undo()
    assert files_of_a_run(2 * many + 6, many) == 1
