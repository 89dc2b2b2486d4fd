"""File source: good rows and dead letters agree on the bad rows, for any columns that are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.topics import consume

HEADER = "sensor,temp,at"
ROWS = ("a,1.5,2024-01-01T00:00:00Z", "b,warm,2024-01-01T00:00:01Z", "c,2.5,2024-01-01T00:00:02Z")
SCHEMA = "sensor STRING, temp DOUBLE, at TIMESTAMP"


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    directory = tmp_path / "in"
    directory.mkdir()
    (directory / "one.csv").write_text("\n".join((HEADER, *ROWS)) + "\n")
    return directory


def importing(spool: Path, out: str, dead: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "sensors",
        "source": {
            "type": "files",
            "path": str(spool / "*.csv"),
            "format": "csv",
            "schema": SCHEMA,
            "format_options": {"header": "true"},
        },
        "sink": {"type": "topic", "topic": out, "key": ["sensor"]},
        "errors": {"tolerance": "all", "dead_letter_topic": dead},
        **more,
    }


@pytest.mark.parametrize(
    "transforms",
    [[], [{"sql": "SELECT sensor FROM input"}], [{"sql": "SELECT 'x' AS sensor FROM input"}]],
    ids=["all columns", "one column", "no column"],
)
def test_a_row_with_a_fault_is_a_dead_letter_and_no_row(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, spool: Path, transforms: list[Any]
) -> None:
    out, dead = new_topic(), new_topic()
    (progress,) = run_spec(importing(spool, out, dead, transforms=transforms))
    assert (progress.records, progress.errors) == (3, 1)
    assert len(consume(bootstrap, out)) == 2
    (letter,) = consume(bootstrap, dead)
    assert letter.value == ROWS[1].encode()
    assert letter.headers["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert ROWS[1].encode() in letter.headers["__connect.errors.exception.message"]


def test_a_file_that_comes_later_with_an_old_time_is_read(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, spool: Path
) -> None:
    """As from `rsync -t` and `cp -p`. Spark leaves out files that are a week older than the newest one."""
    out, dead = new_topic(), new_topic()
    run_spec(importing(spool, out, dead))
    old = spool / "old.csv"
    old.write_text(f"{HEADER}\nold,3.5,2023-12-01T00:00:00Z\n")
    newest_s = (spool / "one.csv").stat().st_mtime
    os.utime(old, (newest_s - 30 * 86_400, newest_s - 30 * 86_400))
    run_spec(importing(spool, out, dead))
    assert {each.key for each in consume(bootstrap, out)} == {b"a", b"c", b"old"}
