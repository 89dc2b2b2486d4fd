"""Checkpoints on a local disk, and elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_lines(spark: SparkSession, lines: Path, checkpoint: Path, out: Path) -> None:
    """Those that were not read before."""
    written = spark.readStream.text(str(lines)).writeStream.format("parquet")
    query = (
        written.option("checkpointLocation", str(checkpoint))
        .option("path", str(out))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_only_local_checkpoints_are_written_the_quick_way(spark: SparkSession, tmp_path: Path) -> None:
    from barnabas.pipelines.spark.state.checkpoint_manager import (
        FEW_PROGRAMS,
        SETTING,
        write_checkpoints_quickly,
    )

    here, named, far = (spark.newSession() for _ in range(3))
    write_checkpoints_quickly(here, str(tmp_path))
    write_checkpoints_quickly(named, tmp_path.as_uri())
    write_checkpoints_quickly(far, "hdfs://nowhere.invalid:1/state")
    assert [each.conf.get(SETTING, None) for each in (here, named, far)] == [FEW_PROGRAMS, FEW_PROGRAMS, None]


def test_what_a_user_has_chosen_stands(spark: SparkSession, tmp_path: Path) -> None:
    from barnabas.pipelines.spark.state.checkpoint_manager import SETTING, write_checkpoints_quickly

    session = spark.newSession()
    session.conf.set(SETTING, "of.the.User")
    write_checkpoints_quickly(session, str(tmp_path))
    assert session.conf.get(SETTING) == "of.the.User"


@pytest.mark.parametrize("quick_first", [False, True])
def test_a_query_goes_on_from_a_checkpoint_that_was_written_the_other_way(
    spark: SparkSession, tmp_path: Path, quick_first: bool
) -> None:
    from barnabas.pipelines.spark.state.checkpoint_manager import write_checkpoints_quickly

    lines, checkpoint, out = (tmp_path / name for name in ("lines", "checkpoint", "out"))
    lines.mkdir()
    for number, quickly in enumerate((quick_first, not quick_first, quick_first)):
        session = spark.newSession()
        if quickly:
            write_checkpoints_quickly(session, str(checkpoint))
        (lines / f"{number}.txt").write_text(f"{number}\n")
        read_lines(session, lines, checkpoint, out)
        offsets = checkpoint / "offsets"
        assert sorted(each.name for each in offsets.iterdir() if each.name.startswith(".")) == [
            f".{each}.crc" for each in range(number + 1)
        ], "each file has its checksum, and nothing else is left"
    assert sorted(row["value"] for row in spark.read.parquet(str(out)).collect()) == ["0", "1", "2"]
