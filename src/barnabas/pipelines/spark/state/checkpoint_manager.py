"""Choice of Spark's checkpoint file manager.

Spark logs each micro-batch in two files, and its state in more, all through Hadoop's `FileContext`. On a
local disk that starts a program (`readlink`, `chmod`) for every query about a file: 80 of the 250 ms of a
small micro-batch. Hadoop's older `FileSystem` writes the same files and checksums and starts fewer programs.
It checks whether a file exists and then renames, in two steps; on a local disk `FileContext` does so too.

On HDFS `FileContext` does it in one step. So Spark chooses wherever the disk is not local.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING: Final = "spark.sql.streaming.checkpointFileManagerClass"
FEW_PROGRAMS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def write_checkpoints_quickly(spark: SparkSession, location: str) -> None:
    """Use the faster manager for queries with checkpoints at `location`, unless the setting is set."""
    if spark.conf.get(SETTING, None) is None and _is_local(spark, location):
        spark.conf.set(SETTING, FEW_PROGRAMS)


def _is_local(spark: SparkSession, location: str) -> bool:
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop.fs
    default = hadoop.FileSystem.getDefaultUri(spark.sparkContext._jsc.hadoopConfiguration())
    local: bool = (hadoop.Path(location).toUri().getScheme() or default.getScheme()) == "file"
    return local
