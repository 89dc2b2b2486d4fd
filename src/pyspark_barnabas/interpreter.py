"""Which Python Spark's workers are.

A script that makes its own SparkSession starts workers, and asks for data sources, with whatever
`python3` the PATH has, unless PYSPARK_PYTHON says otherwise. Run as `.venv/bin/python job.py` in an
environment that is not activated, that is another Python, which has none of the packages, and Spark
says DATA_SOURCE_NOT_FOUND. Importing this package before the session is made says which it is.

`spark-submit` has settings for that, and executors that need not have the driver's paths: there, nothing
is said.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from pyspark import SparkContext

SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Where the JVM listens that has started this process."""


def use_this_python() -> None:
    """What is set already stands, and a context that runs has chosen."""
    if SparkContext._active_spark_context is None and SUBMITTED not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
