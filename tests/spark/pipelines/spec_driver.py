"""A driver of one pipeline from its spec, which can be caught at named points of a micro-batch.

`python -m tests.spark.pipelines.spec_driver '{"spec": …, "bootstrap": …, "state": …, …}'`

The points are the same for every sink, and `hooks.reach` says what happens there:

    written      all rows are at the sink, and the driver is about to decide
    in-commit    the driver is within the commit, before the one step that makes it count
    committed    the commit counts, and Spark's commit log does not know
    doubtful     a table's rows were written without Spark, and have to be written again by Spark
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barnabas.pipelines.spark import runner
from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.runner import run_pipeline
from barnabas.pipelines.spark.sinks import file_log, http, jdbc
from barnabas.pipelines.spark.sinks.table.direct import Route
from barnabas.pipelines.spec.validation import load_document
from barnabas.pipelines.tables import commits
from barnabas.pipelines.tables.delta import Delta
from barnabas.pipelines.tables.iceberg import Iceberg
from pyspark_barnabas.shared.options import Options
from pyspark_barnabas.source import BarnabasDataSource
from pyspark_barnabas.writers.sink import ExactlyOnceBatchWriter
from tests.spark.kill_matrix.hooks import reach
from tests.support.spark import spark_session

WRITTEN, IN_COMMIT, COMMITTED, DOUBTFUL = "written", "in-commit", "committed", "doubtful"
Step = Callable[..., Any]


def around(owner: Any, name: str, *, before: str = "", after: str = "") -> None:
    """Points before and after a function that a module or a class holds by name."""
    step: Step = getattr(owner, name)

    def caught(*arguments: Any, **named: Any) -> Any:
        if before:
            reach(before)
        found = step(*arguments, **named)
        if after:
            reach(after)
        return found

    setattr(owner, name, caught)


def plant() -> None:
    around(commits, "commit_batch", before=WRITTEN, after=COMMITTED)
    in_table_commit(Delta)
    in_table_commit(Iceberg)
    note = Route.note_outcome

    def noting(route: Route, *, is_plain: bool) -> None:
        if not is_plain:
            reach(DOUBTFUL)
        note(route, is_plain=is_plain)

    vars(runner)["DefaultSource"] = CatchableMirror
    setattr(Route, "note_outcome", noting)  # noqa: B010 - a method of the product
    around(file_log.FileLog, "_move", before=WRITTEN)
    around(file_log, "create_entry", before=IN_COMMIT, after=COMMITTED)
    around(jdbc._Target, "_enter", before=WRITTEN)
    around(jdbc._Target, "_move", after=IN_COMMIT)
    around(jdbc._Target, "take", after=COMMITTED)
    around(http, "_finish", before=WRITTEN, after=COMMITTED)


def in_table_commit(kind: Any) -> None:
    """Before the step that makes a commit count: Delta's log entry, or the row in the catalogue."""
    commit = kind.commit

    def committing(table: Any, change: Any) -> None:
        if change.mark is not None:
            if kind is Delta:
                around(table, "_write", before=IN_COMMIT)
            else:
                around(table._catalog, "_write_metadata", after=IN_COMMIT)
        try:
            commit(table, change)
        finally:
            if change.mark is not None:
                owner, name = (table, "_write") if kind is Delta else (table._catalog, "_write_metadata")
                delattr(owner, name)

    kind.commit = committing


class CatchableWriter(ExactlyOnceBatchWriter):
    def _commit(self, *arguments: Any) -> None:
        reach(WRITTEN)
        super()._commit(*arguments)
        reach(COMMITTED)

    def _commit_offsets(self, *arguments: Any) -> None:
        super()._commit_offsets(*arguments)
        reach(IN_COMMIT)


class CatchableMirror(BarnabasDataSource):
    def writer(self, schema: Any, overwrite: bool) -> Any:
        assert not overwrite
        return CatchableWriter(Options(self.options), schema)


def main(given: dict[str, Any]) -> None:
    plant()
    with spark_session(Path(given["directory"]), master="local[2,4]") as spark:
        spec = load_document({"trigger": "available_now", **given["spec"]})
        run_pipeline(Run(spark, spec, given["bootstrap"], given["state"]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
