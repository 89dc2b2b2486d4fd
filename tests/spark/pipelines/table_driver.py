"""A driver of one pipeline into a table, which dies by SIGKILL at a named point of a batch.

`python -m tests.spark.pipelines.table_driver '{"spec": …, "bootstrap": …, "state": …, "point": …}'`
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.runner import run_pipeline
from barnabas.pipelines.spark.sinks.table import sink
from barnabas.pipelines.spec.validation import load_document
from barnabas.pipelines.tables import commits
from barnabas.pipelines.tables.delta import Delta
from barnabas.pipelines.tables.iceberg import Iceberg
from tests.support.spark import spark_session

BATCH = 1
"""Number of the batch in which the driver dies."""
TASK = "in-task"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def plant(point: str, directory: Path) -> None:
    """Deaths of the driver, and of a worker that has written half of its rows, once."""
    if point == TASK:
        die_in_task(directory / "a-worker-died")
    elif point == "in-commit":
        die_in_commit(Delta)
        die_in_commit(Iceberg)
    else:
        die_beside_commit(point)


def die_beside_commit(point: str) -> None:
    commit_batch = commits.commit_batch

    def committing(table: Any, mark: Any, *more: Any) -> bool:
        is_time = mark.batch_id == BATCH
        if is_time and point == "after-write":
            die()
        done = commit_batch(table, mark, *more)
        if is_time and point == "after-commit":
            die()
        return done

    vars(commits)["commit_batch"] = committing


def die_in_commit(kind: Any) -> None:
    """Before the one step that makes a commit count: Delta's log entry, or the row in the catalogue."""
    commit = kind.commit

    def committing(table: Any, change: Any) -> None:
        if change.mark is not None and change.mark.batch_id == BATCH:
            if kind is Delta:
                die_in(table, "_write")
            else:
                die_in(table._catalog, "_write_metadata", is_done=True)
        commit(table, change)

    kind.commit = committing


def die_in(owner: Any, name: str, *, is_done: bool = False) -> None:
    step = getattr(owner, name)

    def dying(*arguments: Any, **named: Any) -> None:
        if is_done:
            step(*arguments, **named)
        die()

    setattr(owner, name, dying)


def die_in_task(marker: Path) -> None:
    writer_of, place = vars(sink)["writer_of"], str(marker)

    def writing(*arguments: Any) -> Any:
        write = writer_of(*arguments)

        def dying(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                half = batch.num_rows // 2
                yield batch.slice(0, half)
                try:
                    os.close(os.open(place, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    yield batch.slice(half)
                else:
                    os.kill(os.getpid(), signal.SIGKILL)

        return lambda batches: write(dying(batches))

    vars(sink)["writer_of"] = writing


def main(given: dict[str, Any]) -> None:
    directory = Path(given["directory"])
    plant(given["point"], directory)
    with spark_session(directory, master=given["master"]) as spark:
        spec = load_document({"trigger": "available_now", **given["spec"]})
        run_pipeline(Run(spark, spec, given["bootstrap"], given["state"]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
