from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.synced_files import SyncedFiles

from barnabas.pipelines.state.durable_files import local_path, sync_files, sync_plan


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> SyncedFiles:
    return SyncedFiles(monkeypatch)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "state" / "offsets").mkdir(parents=True)
    for name in ("metadata", ".metadata.crc", "offsets/0", "offsets/.0.crc", "offsets/1"):
        (tmp_path / "state" / name).write_text(name)
    return tmp_path / "state"


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_the_first_plan_is_synced_with_the_query_id_and_all_directories(
    checkpoint: Path, synced: SyncedFiles, form: str
) -> None:
    sync_plan(form.format(checkpoint), 0)
    wanted = ("offsets/.0.crc", "offsets/0", "offsets", "metadata", ".metadata.crc", "", "..")
    assert all(checkpoint / name in synced for name in wanted)
    assert checkpoint / "offsets" / "1" not in synced


def test_a_later_plan_is_synced_alone(checkpoint: Path, synced: SyncedFiles) -> None:
    sync_plan(str(checkpoint), 1)
    assert checkpoint / "offsets" / "1" in synced
    assert checkpoint / "offsets" in synced
    assert checkpoint / "metadata" not in synced


def test_a_relative_checkpoint_is_found(
    checkpoint: Path, synced: SyncedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoint.parent)
    sync_plan(checkpoint.name, 1)
    assert checkpoint / "offsets" / "1" in synced


def test_other_file_systems_and_missing_files_are_left_out(tmp_path: Path, synced: SyncedFiles) -> None:
    sync_plan("s3a://bucket/state", 0)
    sync_plan(str(tmp_path / "nowhere"), 1)
    sync_files([tmp_path / "nothing"])
    assert not synced.paths
    assert local_path("hdfs://host/a") is None


def test_an_error_of_the_disk_is_raised(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        sync_plan(str(checkpoint), 1)


def test_the_connector_syncs_the_plan_before_it_commits_a_batch(
    checkpoint: Path, synced: SyncedFiles
) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    from pyspark.sql.types import BinaryType, StructType

    from pyspark_barnabas.shared.options import Options
    from pyspark_barnabas.writers.sink import ExactlyOnceStreamWriter

    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "pipelineId": "copy",
        "topic": "out",
        "checkpointLocation": str(checkpoint),
    }
    writer = ExactlyOnceStreamWriter(Options(options), StructType().add("value", BinaryType()))
    writer._source_offsets(1)
    assert checkpoint / "offsets" / "1" in synced
