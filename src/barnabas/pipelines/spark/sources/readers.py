"""Reader of each source in the catalogue, for the runner and for joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.pipelines.spark.context.run_context import Rows
from barnabas.pipelines.spark.sources import files, jdbc, rate, topic

READERS: Mapping[str, Callable[..., Rows]] = {
    "topic": topic.read,
    "files": files.read,
    "jdbc": jdbc.read,
    "rate": rate.read,
}
