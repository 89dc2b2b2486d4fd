"""A driver of the database sink without Spark, which dies by SIGKILL at a named point, or waits there.

The sink's own `take` runs on rows of this process. `python -m tests.scenario.pipelines.database_driver
'{...}'` takes one micro-batch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.databases.addresses import database_of
from barnabas.pipelines.spark.sinks.jdbc import _Target
from barnabas.pipelines.spec.validation import load_document
from pyspark_barnabas.writers.batch_names import QUERY_ID

QUERY = "8f6a2c1e-0000-4000-8000-000000000002"
POINTS = ("mid-staging", "staged", "in-commit", "after-commit")
KINDS: dict[str, T.DataType] = {"id": T.LongType(), "text": T.StringType(), "batch": T.LongType()}

Row = tuple[Any, ...]
"""Offset, 1 for a tombstone, and the values."""
At = Callable[[str], None]


def rows_of(ids: Sequence[int], batch: int, row_bytes: int = 0, deleted: Sequence[int] = ()) -> list[Row]:
    """Rows of a micro-batch, then its tombstones."""
    rows: list[Row] = [(at, 0, each, text_of(batch, each, row_bytes), batch) for at, each in enumerate(ids)]
    return [*rows, *((len(rows) + at, 1, each, None, None) for at, each in enumerate(deleted))]


def text_of(batch: int, number: int, row_bytes: int) -> str:
    return f"{batch}-{number}".ljust(row_bytes, ".")


class Batch:
    """A micro-batch as the sink sees it: Spark's names, and rows of this process in one task."""

    def __init__(self, rows: Sequence[Row], at: At) -> None:
        self._rows = rows
        self._at = at
        self.rdd = self.sparkSession = self.sparkContext = self

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - Spark's name
        assert name == QUERY_ID
        return QUERY

    def mapPartitions(self, task: Callable[[Iterator[Row]], Iterator[Any]]) -> Batch:  # noqa: N802 - Spark's name
        self._reports = list(task(self.toLocalIterator()))
        return self

    def collect(self) -> list[Any]:
        return self._reports

    def toLocalIterator(self) -> Iterator[Row]:  # noqa: N802 - Spark's name
        for number, row in enumerate(self._rows):
            if number == len(self._rows) // 2:
                self._at("mid-staging")
            yield row


def take(
    url: str, table: str, batch_id: int, rows: Sequence[Row], *, is_upsert: bool, at: At = lambda _: None
) -> None:
    """One micro-batch. `at` is called at each point where a driver may die."""
    keyed = {"mode": "upsert", "key": ["id"], "key_from": "record_key", "delete": True}
    options = {"type": "jdbc", "url": url, "table": table, **(keyed if is_upsert else {"mode": "insert"})}
    spec = load_document({"name": table, "source": {"type": "rate"}, "sink": options})
    database = database_of(spec.sink, Run(None, spec, "", ""))  # type: ignore[arg-type]
    is_key = {name: is_upsert and name == "id" for name in KINDS}
    kinds = [database.type_of(kind, name, is_key=is_key[name]) for name, kind in KINDS.items()]
    target: Any = _Target(database, spec.sink, table, list(KINDS), kinds)
    target.prepare()
    # SQLite's rows are staged by the driver itself, whose commit locks the whole file.
    name = "_stage" if database.stages_in_tasks else "_stage_here"
    stage, move = getattr(target, name), target._move

    def staging(*arguments: Any) -> Any:
        staged = stage(*arguments)
        at("staged")
        return staged

    def moving(*arguments: Any) -> None:
        move(*arguments)
        at("in-commit")

    setattr(target, name, staging)
    target._move = moving
    target.take(Batch(rows, at), batch_id)
    at("after-commit")


def main(given: dict[str, Any]) -> None:
    reached, released = Path(given["directory"]) / "reached", Path(given["directory"]) / "released"

    def at(point: str) -> None:
        if point != given["point"]:
            return
        if given["dies"]:
            os.kill(os.getpid(), signal.SIGKILL)
        reached.touch()
        while not released.exists():
            time.sleep(0.01)

    rows = [tuple(each) for each in given["rows"]]
    take(given["url"], given["table"], given["batch"], rows, is_upsert=given["is_upsert"], at=at)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
