"""Named points in a micro-batch at which a driver can be caught, for tests alone.

The driver script registers `CatchableSource` under the connector's own name, so what runs is the
product with pauses in it. A point that KILL_MATRIX_POINT names (`mid-commit:2`: the second time) says
so in a file and stands still until it is released. What then happens to the process is the test's
affair: a point that kills could not be killed from outside, stopped or outlived.

A task may also be told to die at a point (KILL_MATRIX_DIES, `mid-write:2`), once, by killing its own
Python worker: Spark then runs it again. Every attempt at a task gets its rows in an order of its own,
as shuffles give them, so that attempts that were mixed would not come to the same by luck.

Points, in the order in which a micro-batch comes to them:

    before-begin   nothing of the batch is at the broker yet
    after-begin    InitProducerId was answered, nothing is written
    before-write   a task has its first rows, and has written none
    mid-write      a task has written one of several batches to its partition
    after-write    a task has written all its rows, and Spark does not know
    after-writes   every task has written, the driver is about to commit
    before-copy    a task ran more than once; its transaction is aborted, nothing is copied
    mid-copy       one of several batches is copied
    after-copy     all is copied
    mid-commit     TxnOffsetCommit was answered, EndTxn is not sent
    after-end      EndTxn was answered, Spark's commit log does not know
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from barnabas.client.core.transaction_steps import Transaction
from pyspark_barnabas.produce import rows
from pyspark_barnabas.produce.producer import BatchSender, Outgoing
from pyspark_barnabas.shared.options import Options
from pyspark_barnabas.source import BarnabasDataSource
from pyspark_barnabas.writers.attempts import attempt as attempts
from pyspark_barnabas.writers.attempts import copy_attempts, staging
from pyspark_barnabas.writers.sink import ExactlyOnceStreamWriter

POINT = "KILL_MATRIX_POINT"
DIES = "KILL_MATRIX_DIES"
DIRECTORY = "KILL_MATRIX_DIRECTORY"
REACHED = "reached"
RELEASED = "released"


PIECE_RECORDS = 50


def reach(point: str) -> None:
    directory = Path(os.environ[DIRECTORY])
    if _is_time(DIES, point, directory):
        os.kill(os.getpid(), signal.SIGKILL)
    if not _is_time(POINT, point, directory):
        return
    partial = directory / f"{REACHED}.{os.getpid()}"
    partial.write_text(str(os.getpid()))
    partial.rename(directory / REACHED)
    while not (directory / RELEASED).exists():
        time.sleep(0.02)


def _is_time(what: str, point: str, directory: Path) -> bool:
    wanted, _, time_wanted = os.environ.get(what, "").partition(":")
    return point == wanted and _times_reached(directory, f"{what}.{point}") == int(time_wanted or 1)


def _times_reached(directory: Path, name: str) -> int:
    """Counted by files that only one process can create, because tasks come here side by side."""
    for number in itertools.count(1):
        try:
            (directory / f"{name}.{number}").touch(exist_ok=False)
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

    def _write_rows(self, cluster: Any, part: Any, batches: Any, context: Any) -> None:
        # Small pieces, each acknowledged before the next: otherwise a task writes all it has at its end.
        rows.FLUSH_BYTES = 1  # type: ignore[misc]
        vars(attempts)["BatchSender"] = vars(staging)["BatchSender"] = WaitingSender
        pieces = _in_an_order_of_its_own(batches, context.taskAttemptId())
        super()._write_rows(cluster, part, _caught_in_the_middle(pieces), context)
        reach("after-write")

    def _settled(self, *arguments: Any) -> Any:
        vars(copy_attempts)["BatchSender"] = CopyingSender
        settled = super()._settled(*arguments)
        reach("after-copy")
        return settled

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


class CopyingSender(WaitingSender):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        reach("before-copy")
        self._sent = 0

    def send(self, batches: Iterable[Outgoing]) -> None:
        super().send(batches)
        self._sent += 1
        if self._sent == 1:
            reach("mid-copy")


def _in_an_order_of_its_own(batches: Iterable[Any], attempt: int) -> Iterator[Any]:
    gathered = [batch for batch in batches if batch.num_rows]
    if not gathered:
        return
    table = pa.Table.from_batches(gathered)
    order = np.random.default_rng(attempt).permutation(table.num_rows)
    largest = max(1, min(PIECE_RECORDS, 1_000_000 // max(table.nbytes // table.num_rows, 1)))
    for first in range(0, table.num_rows, largest):
        yield from table.take(order[first : first + largest]).combine_chunks().to_batches()


def _caught_in_the_middle(batches: Iterable[Any]) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        if number < 2:
            reach(("before-write", "mid-write")[number])
        yield batch
