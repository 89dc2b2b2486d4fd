"""What a sink hands back: a query ready to start, and whether it took the dead letters along."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_barnabas.batch_names import QUERY_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Writing(NamedTuple):
    writer: DataStreamWriter
    took_letters: bool = False


def query_id(batch: DataFrame) -> str:
    """Of the query that a micro-batch is of: the checkpoint keeps it, so no other query ever has it."""
    found = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    assert found, "a micro-batch has a query"
    return found
