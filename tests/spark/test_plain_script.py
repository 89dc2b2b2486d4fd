"""A script as a user writes it, run by its environment's Python in a shell that has another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.broker import REPOSITORY
from tests.support.spark import require_spark

SCRIPT = """
import sys
import pyspark_barnabas
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "512m")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
df = (
    spark.read.format("barnabas")
    .option("kafka.bootstrap.servers", sys.argv[1])
    .option("subscribe", sys.argv[2])
    .load()
)
print("rows:", df.count())
"""


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    require_spark()
    other = directory / "bin"
    other.mkdir()
    (other / "python3").write_text("#!/bin/sh\necho 'not the environment of the script' >&2\nexit 9\n")
    (other / "python3").chmod(0o755)
    (directory / "job.py").write_text(SCRIPT)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", "SPARK_HOME"}
    }
    environment["PATH"] = os.pathsep.join([str(other), environment["PATH"]])
    environment["PYTHONPATH"] = str(REPOSITORY / "src")
    return subprocess.run(
        [sys.executable, "job.py", *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_spark_s_workers_are_the_script_s_own_python(bootstrap: str, topic: str, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(3):
        producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    done = run(tmp_path, bootstrap, topic)
    assert "rows: 3" in done.stdout, done.stderr[-4_000:]


@pytest.mark.parametrize("address", ["127.0.0.1:1"])
def test_a_broker_that_is_not_there_is_named(tmp_path: Path, address: str) -> None:
    done = run(tmp_path, address, "t")
    assert done.returncode != 0
    assert f"no broker answers at {address}" in done.stderr
