"""Texts that a pipeline keeps beside its checkpoint, wherever that lies.

Spark's own file systems are asked, since a pipeline's home may be on any of them.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.run import Run


def read_note(run: Run, location: str) -> str | None:
    """The text at `location`, a file or what `write_note` made; None if there is nothing."""
    jvm: Any = run.spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(location)
    if not path.getFileSystem(run.spark.sparkContext._jsc.hadoopConfiguration()).exists(path):
        return None
    rows = run.spark.read.text(location, wholetext=True).collect()
    return str(rows[0][0]).rstrip("\n") if rows else None


def write_note(run: Run, location: str, text: str) -> None:
    frame = run.spark.range(1).select(F.lit(text).alias("noted")).coalesce(1)
    frame.write.mode("overwrite").text(location)
