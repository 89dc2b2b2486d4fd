"""Result of building a sink: a query ready to start, and whether it includes the dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark_barnabas.writers.batch_names import QUERY_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Background(Protocol):
    """Work of a sink beside its query."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class BuiltSink(NamedTuple):
    writer: DataStreamWriter
    took_letters: bool = False
    background: Background | None = None
    """Started after the query, and stopped after it."""


def query_id(batch: DataFrame) -> str:
    """Id of a micro-batch's query. The checkpoint keeps it, so no other query has it."""
    found = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    assert found, "a micro-batch has a query"
    return found
