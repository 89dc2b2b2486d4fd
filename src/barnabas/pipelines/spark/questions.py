"""One question at a time for the Python process that plans a stream's micro-batches.

Spark asks that process over one connection, and nothing keeps two of its threads from asking at once: each
then reads parts of the other's answer. The query fails ("prefetchArrowBatches: unknown status code 267", the
length of a partition that was taken for a status), or waits for ever.

Two threads ask where one stream feeds two shuffles of a micro-batch, as the good rows and the dead letters of
an exactly-once topic do, and Spark plans adaptively: it then prepares each shuffle in a thread of its own.
Without that the thread of the query asks for both, one after the other. Spark has planned stateless streams
adaptively since 4.1 only, and gains little by it here: how many partitions a shuffle has is settled before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING: Final = "spark.sql.adaptive.streaming.stateless.enabled"


def ask_one_at_a_time(spark: SparkSession) -> None:
    """For the queries that this session starts from now on."""
    spark.conf.set(SETTING, "false")
