"""Python executable of Spark's workers: the one that imports this package.

A script that makes its own SparkSession starts workers with the `python3` of the PATH, unless PYSPARK_PYTHON
is set. If the script runs as `.venv/bin/python job.py` without an activated environment, that is another
Python without the packages, and Spark fails with DATA_SOURCE_NOT_FOUND. Importing this package before the
session sets PYSPARK_PYTHON.

`spark-submit` has settings for the executable, and its executors need not have the driver's paths. There the
variable stays as it is.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from pyspark import SparkContext

SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Environment variable with the port of the JVM that started this process."""


def use_this_python() -> None:
    """Set PYSPARK_PYTHON, unless it is set or a SparkContext already runs."""
    if SparkContext._active_spark_context is None and SUBMITTED not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
