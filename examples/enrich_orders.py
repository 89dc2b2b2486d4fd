"""Orders joined with their customers' segment, with a user's function from DataFrame to DataFrame.

Run it with `python examples/enrich_orders.py 127.0.0.1:9092 segments.csv`. It reads the available records and
ends.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines import Pipeline


def large_orders(orders: DataFrame) -> DataFrame:
    worth = orders.withColumn("amount", F.col("cents") / 100).where("amount >= 10")
    return worth.select("id", "customer", "segment", "amount")


def pipeline(bootstrap: str, segments: str, state: str | None = None) -> Pipeline:
    return Pipeline(
        name="enrich-orders",
        source={"type": "topic", "topics": "orders", "schema": "id BIGINT, customer STRING, cents BIGINT"},
        transforms=[
            {
                "type": "join",
                "on": "customer",
                "how": "left",
                "source": {
                    "type": "files",
                    "path": segments,
                    "format": "csv",
                    "schema": "customer STRING, segment STRING",
                },
            }
        ],
        sink={"type": "topic", "topic": "large-orders", "key": "customer"},
        trigger="available_now",
        bootstrap=bootstrap,
        state=state,
    ).transform(large_orders)


if __name__ == "__main__":
    pipeline(*sys.argv[1:3]).run()
