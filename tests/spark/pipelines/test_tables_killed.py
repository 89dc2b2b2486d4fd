"""Kill matrix of the table sink on Spark: drivers and workers die by SIGKILL, and each row is there once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import REPOSITORY
from tests.support.fixtures import TopicFactory
from tests.support.spark import require_spark
from tests.support.table_reading import data_paths, live_paths, read_rows
from tests.support.topics import produce

pytestmark = [pytest.mark.kill_matrix, pytest.mark.timeout(1_200)]

KILLED = -9
RECORDS = 24
ATTEMPTS = 4


@pytest.mark.parametrize("row_bytes", [100, 950_000])
@pytest.mark.parametrize("point", ["in-task", "after-write", "in-commit", "after-commit"])
@pytest.mark.parametrize("way", ["direct", "spark", "upsert"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_pipeline_killed_anywhere_leaves_every_row_once(
    bootstrap: str, new_topic: TopicFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    kind: str, way: str, point: str, row_bytes: int,
) -> None:  # fmt: skip
    """Without Spark's decoder, with it, and by key."""
    require_spark()
    mode = "upsert" if way == "upsert" else "append"
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[kind])
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    source, lake = new_topic(partitions=2, max_message_bytes=4_000_000), tmp_path / "lake"
    ids = [at % (RECORDS // 2) if mode == "upsert" else at for at in range(RECORDS)]
    wanted: dict[Any, str] = {}
    for at, number in enumerate(ids):
        text = f"{at}-{number}".ljust(row_bytes, ".")
        produce(bootstrap, source, [{"id": number, "text": text}], key=str(number).encode())
        wanted[number] = text
    spec: dict[str, Any] = {
        "name": "killed",
        "source": {
            "type": "topic", "topics": source, "schema": "id BIGINT, text STRING",
            "max_offsets_per_trigger": 8,
        },
        "sink": {
            "type": "table", "format": kind, "path": str(lake), "mode": mode,
            **({"key": ["id"]} if mode == "upsert" else {}),
        },
    }  # fmt: skip
    if way == "spark":
        spec["transforms"] = [{"sql": "SELECT * FROM input"}]
    code = run(spec, bootstrap, tmp_path, point)
    assert code == (0 if point == "in-task" else KILLED)
    for _ in range(ATTEMPTS):
        # Spark gives its Python workers ten seconds to start, which a busy machine may exceed.
        if run(spec, bootstrap, tmp_path, "") == 0:
            break
    found = read_rows(kind, lake)
    assert sorted(row["id"] for row in found) == sorted(wanted)
    assert {row["id"]: row["text"] for row in found} == wanted
    if mode == "append":
        assert data_paths(lake) == set(live_paths(kind, lake)), "files of a dead attempt are left"


def run(spec: dict[str, Any], bootstrap: str, directory: Path, point: str) -> int:
    """Exit code of a driver."""
    given = {
        "spec": spec, "bootstrap": bootstrap, "state": str(directory / "state"), "point": point,
        "directory": str(directory), "master": "local[2,4]",
    }  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"}
    command = [sys.executable, "-m", "tests.spark.pipelines.table_driver", json.dumps(given)]
    return subprocess.run(command, check=False, env=environment, capture_output=True, timeout=900).returncode
