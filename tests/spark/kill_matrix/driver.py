"""A driver as a user would write it: topic, transform, topic, exactly once, until all is read.

python -m tests.spark.kill_matrix.driver '{"bootstrap": …, "source": …, "sink": …, …}'
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from barnabas.pipelines.spark.jvm.class_sharing import sharing_options
from barnabas.pipelines.spark.jvm.session import use_unzipped_home
from barnabas.pipelines.spark.state.checkpoint_manager import write_checkpoints_quickly
from pyspark_barnabas import exactly_once
from tests.spark.kill_matrix.hooks import CatchableSource
from tests.support.spark import BRIEF_JVM, SETTINGS


def main(given: dict[str, Any]) -> None:
    directory = Path(given["directory"])
    if given["master"].startswith("local"):
        use_unzipped_home()
    builder = SparkSession.builder.master(given["master"]).appName("kill-matrix")
    settings = {
        **SETTINGS,
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": f"{BRIEF_JVM} {sharing_options(SETTINGS, pyspark.__version__)}",
        "spark.executor.extraJavaOptions": BRIEF_JVM,
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
    write_checkpoints_quickly(spark, given["checkpoint"])
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
