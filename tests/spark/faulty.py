"""The exactly-once sink with a driver that dies at a chosen point of its commit.

A dead driver aborts nothing and says nothing more: its commit process kills itself, and what Spark
then still does on its behalf (`abort`) is left out. Where it dies is the first word in a file, which
is emptied by dying, so that the next run gets through.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from pyspark_barnabas.shared.options import Options
from pyspark_barnabas.source import BarnabasDataSource
from pyspark_barnabas.writers.sink import ExactlyOnceStreamWriter

POINTS = ("after-write", "mid-commit", "after-end", "after-end-unheard")


class FaultySource(BarnabasDataSource):
    @classmethod
    def name(cls) -> str:
        return "barnabas-faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        options = dict(self.options)
        return FaultyWriter(Path(options.pop("path")), Options(options), schema)


class FaultyWriter(ExactlyOnceStreamWriter):
    def __init__(self, fault: Path, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._fault = fault

    def _die_at(self, point: str) -> None:
        if self._fault.read_text() == point:
            self._fault.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)

    def _commit(self, parts: Any, batch_id: int) -> None:
        self._die_at("after-write")
        super()._commit(parts, batch_id)
        self._die_at("after-end")

    def _commit_offsets(self, *arguments: Any) -> None:
        super()._commit_offsets(*arguments)
        self._die_at("mid-commit")

    def _end(self, *arguments: Any) -> None:
        super()._end(*arguments)
        self._die_at("after-end-unheard")

    def _abort(self, parts: Any) -> None:
        return
