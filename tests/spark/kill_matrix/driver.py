"""A driver as a user would write it: topic, transform, topic, exactly once, until all is read.

python -m tests.spark.kill_matrix.driver '{"bootstrap": …, "source": …, "sink": …, …}'
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pyspark_barnabas import exactly_once
from tests.spark.kill_matrix.hooks import CatchableSource
from tests.support.spark import SETTINGS

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for seconds spends more on compiling well than it gains."""


def main(given: dict[str, Any]) -> None:
    directory = Path(given["directory"])
    builder = SparkSession.builder.master(given["master"]).appName("kill-matrix")
    settings = {
        **SETTINGS,
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.executor.extraJavaOptions": SHORT_LIVED,
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
        **given["settings"],
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(CatchableSource)
    options = {"kafka.bootstrap.servers": given["bootstrap"]}
    records = (
        spark.readStream.format("barnabas")
        .options(**options, subscribe=given["source"], startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", given["batch_records"])
        .load()
        .selectExpr("key", "concat('seen-', cast(value as string)) as value")
    )
    query = (
        exactly_once(records, topic=given["sink"], **options)
        .writeStream.format("barnabas")
        .options(**options, topic=given["sink"], delivery="exactly-once", pipelineId=given["pipeline_id"])
        .option("checkpointLocation", given["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
