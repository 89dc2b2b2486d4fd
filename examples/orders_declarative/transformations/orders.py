"""Every change of an order, as a streaming table: each update adds the new ones."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

BROKERS = os.environ.get("BARNABAS_BOOTSTRAP", "127.0.0.1:9092")
SCHEMA = "id BIGINT, status STRING, cents BIGINT"


@dp.table
def orders() -> DataFrame:
    records = (
        SparkSession.active()
        .readStream.format("barnabas")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    order = F.from_json(F.col("value").cast("string"), SCHEMA, {"mode": "FAILFAST"})
    return records.select(order.alias("order"), "partition", "offset").select(
        "order.*", "partition", "offset"
    )
