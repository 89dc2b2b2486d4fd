"""A driver without Spark: writes a batch's files, and commits them as the table sink does.

`python -m tests.contract.tables.writing '{...}'` runs one batch in a process of its own, which dies by
SIGKILL at a named point, or waits there as a zombie.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.core.clock import SystemClock
from barnabas.pipelines.tables import copy_on_write
from barnabas.pipelines.tables.commits import commit_batch, is_done
from barnabas.pipelines.tables.data_files import DataFile, Layout, write_files
from barnabas.pipelines.tables.file_names import BatchName, new_run
from barnabas.pipelines.tables.mark import BatchMark
from barnabas.pipelines.tables.open_table import open_table
from barnabas.pipelines.tables.schemas import conform, difference
from barnabas.pipelines.tables.table import Change, Table

COLUMNS = pa.schema([("id", pa.int64()), ("text", pa.string()), ("batch", pa.int32())])
QUERY = "8f6a2c1e-0000-4000-8000-000000000001"
POINTS = ("mid-write", "after-write", "mid-rewrite", "in-commit", "after-commit")


def opened(kind: str, path: Path, columns: pa.Schema = COLUMNS, by: Sequence[str] = ()) -> Table:
    return open_table({"format": kind, "path": str(path)}, columns, by, SystemClock(), create=True)


def rows_of(ids: Sequence[int], batch: int, row_bytes: int = 0) -> list[dict[str, Any]]:
    return [{"id": at, "text": f"{batch}-{at}".ljust(row_bytes, "."), "batch": batch} for at in ids]


class Writer:
    """One driver of a query."""

    def __init__(
        self,
        kind: str,
        path: Path,
        *,
        query: str = QUERY,
        columns: pa.Schema = COLUMNS,
        by: Sequence[str] = (),
    ) -> None:
        self.begin(opened(kind, path, columns, by), query=query, columns=columns)

    @classmethod
    def of(cls, table: Table, query: str = QUERY) -> Writer:
        """A driver of a table that is open."""
        found = cls.__new__(cls)
        found.begin(table, query=query)
        return found

    def begin(self, table: Table, *, query: str, columns: pa.Schema = COLUMNS) -> None:
        self.table = table
        self._query = query
        self._columns = columns
        self._run = new_run()

    def name(self, batch: int) -> BatchName:
        return BatchName(self._query, 0, batch, self._run)

    def mark(self, batch: int, *, end: int | None = None, topic_id: str = "first") -> BatchMark:
        offsets = {"orders": {"0": batch if end is None else end}, "@topic_ids": {"orders": topic_id}}
        return BatchMark("copy", self._query, 0, batch, (offsets,), f"{self._run}-{batch}")

    def layout(self) -> Layout:
        self.table.refresh()
        return self.table.layout(self.table.columns(), 1 << 20, "zstd")

    def take(
        self,
        batch: int,
        rows: Sequence[Mapping[str, Any]],
        *,
        deleted: Sequence[int] = (),
        is_upsert: bool = False,
        at: Callable[[str], None] = lambda _: None,
        mark: BatchMark | None = None,
    ) -> bool:
        """One micro-batch. `at` is called at each point where a driver may die."""
        mark = mark or self.mark(batch)
        name, table = self.name(batch), self.table
        table.refresh()
        if is_done(table, mark):
            return False
        found = difference(self._columns, table.columns(), can_widen=table.can_widen)
        columns = table.columns()
        if found.changes_table:
            columns = table.columns_with(found.added, found.widened)
        layout = table.layout(columns, 1 << 20, "zstd")
        written = pa.RecordBatch.from_pylist([dict(each) for each in rows], self._columns)
        files = write_files(_halves(conform(written, columns), at), layout, name, 0)
        at("after-write")
        keys = pa.table({"id": pa.array([*(each["id"] for each in rows), *deleted], pa.int64())})
        rewritten: list[DataFile] = []

        def change() -> Change:
            layout.storage.remove(each.path for each in rewritten)
            rewritten.clear()
            new = columns if found.changes_table else None
            if not is_upsert:
                return Change(mark, files, (), new)
            done = copy_on_write.without_keys(table, keys, layout, name)
            rewritten.extend(done.added)
            at("mid-rewrite")
            return Change(mark, [*files, *done.added], done.removed, new)

        def remove(made: Sequence[DataFile]) -> None:
            layout.storage.remove(each.path for each in [*files, *made])

        with _hook_in_commit(table, at):
            is_ours = commit_batch(table, mark, change, remove, lambda _: None)
        at("after-commit")
        if is_ours:
            committed = {each.path for each in (*files, *rewritten)}
            layout.storage.remove(
                each.path
                for each in layout.storage.list()
                if name.owns(each.path) and each.path not in committed
            )
        return is_ours


def _halves(batch: pa.RecordBatch, at: Callable[[str], None]) -> Iterator[pa.RecordBatch]:
    middle = batch.num_rows // 2
    yield batch.slice(0, middle)
    at("mid-write")
    yield batch.slice(middle)


class _hook_in_commit:  # noqa: N801 - a context manager that is used as a function
    """Calls `at("in-commit")` between the decision to commit and the one step that makes it count."""

    def __init__(self, table: Table, at: Callable[[str], None]) -> None:
        self._at = at
        self._catalog = getattr(table, "_catalog", None)
        self._table: Any = table

    def __enter__(self) -> None:
        if self._catalog is None:
            write = self._table._write

            def hooked(*arguments: Any) -> None:
                self._at("in-commit")
                write(*arguments)

            self._table._write = hooked
            return
        engine = type(self._catalog)._write_metadata

        def before_the_catalogue(
            metadata: Any, io: Any, metadata_path: str, *more: Any, **named: Any
        ) -> None:
            engine(metadata, io, metadata_path, *more, **named)
            self._at("in-commit")

        self._catalog._write_metadata = before_the_catalogue

    def __exit__(self, *_: object) -> None:
        if self._catalog is None:
            del self._table._write
        else:
            del self._catalog._write_metadata


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

    table = open_table(given["options"], COLUMNS, (), SystemClock(), create=True)
    writer = Writer.of(table)
    rows = rows_of(given["ids"], given["batch"], given["row_bytes"])
    writer.take(given["batch"], rows, deleted=given["deleted"], is_upsert=given["is_upsert"], at=at)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
