"""What writes to each kind of sink of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.pipelines.spark.sinks import console, files, jdbc, topic
from barnabas.pipelines.spark.sinks.writing import Writing

WRITERS: Mapping[str, Callable[..., Writing]] = {
    "topic": topic.write,
    "files": files.write,
    "jdbc": jdbc.write,
    "console": console.write,
}
