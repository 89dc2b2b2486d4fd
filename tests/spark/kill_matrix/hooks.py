"""Named points in a micro-batch at which a driver can be caught, for tests alone.

The driver script registers `CatchableSource` under the connector's own name, so what runs is the
product with pauses in it. A point that KILL_MATRIX_POINT names (`mid-commit:2`: the second time) says
so in a file and stands still until it is released. What then happens to the process is the test's
affair: a point that kills could not be killed from outside, stopped or outlived.

Points, in the order in which a micro-batch comes to them:

    before-begin   nothing of the batch is at the broker yet
    after-begin    InitProducerId was answered, nothing is written
    mid-write      a task has written one of several batches to its partition
    after-writes   every task has written, the driver is about to commit
    mid-commit     TxnOffsetCommit was answered, EndTxn is not sent
    after-end      EndTxn was answered, Spark's commit log does not know
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from pyspark_barnabas import rows, sink
from pyspark_barnabas.options import Options
from pyspark_barnabas.producer import BatchSender, Outgoing
from pyspark_barnabas.sink import ExactlyOnceStreamWriter
from pyspark_barnabas.source import BarnabasDataSource
from pyspark_barnabas.txn import Transaction

POINT = "KILL_MATRIX_POINT"
DIRECTORY = "KILL_MATRIX_DIRECTORY"
REACHED = "reached"
RELEASED = "released"


def reach(point: str) -> None:
    wanted, _, time_wanted = os.environ.get(POINT, "").partition(":")
    if point != wanted:
        return
    directory = Path(os.environ[DIRECTORY])
    if _times_reached(directory, point) != int(time_wanted or 1):
        return
    partial = directory / f"{REACHED}.{os.getpid()}"
    partial.write_text(str(os.getpid()))
    partial.rename(directory / REACHED)
    while not (directory / RELEASED).exists():
        time.sleep(0.02)


def _times_reached(directory: Path, point: str) -> int:
    """Counted by files that only one process can create, because tasks come here side by side."""
    for number in itertools.count(1):
        try:
            (directory / f"{point}.{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return number
    raise AssertionError


class CatchableSource(BarnabasDataSource):
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        assert not overwrite
        return CatchableWriter(Options(self.options), schema)


class CatchableWriter(ExactlyOnceStreamWriter):
    def _begin(self) -> Transaction:
        reach("before-begin")
        begun = super()._begin()
        reach("after-begin")
        return begun

    def _write_rows(self, cluster: Any, transaction: Any, batches: Any, context: Any) -> Any:
        # Small pieces, each acknowledged before the next: otherwise a task writes all it has at its end.
        rows.FLUSH_BYTES = 1  # type: ignore[misc]
        sink.BatchSender = WaitingSender  # type: ignore[misc]
        return super()._write_rows(cluster, transaction, _caught_in_the_middle(batches), context)

    def _commit(self, parts: Any, batch_id: int) -> None:
        reach("after-writes")
        super()._commit(parts, batch_id)
        reach("after-end")

    def _commit_offsets(self, *arguments: Any) -> None:
        super()._commit_offsets(*arguments)
        reach("mid-commit")


class WaitingSender(BatchSender):
    def send(self, batches: Iterable[Outgoing]) -> None:
        super().send(batches)
        self.flush()


def _caught_in_the_middle(batches: Iterable[Any]) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        if number == 1:
            reach("mid-write")
        yield batch
