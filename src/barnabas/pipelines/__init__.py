"""Data pipelines on Spark Structured Streaming: the role of Kafka Connect.

- `spec`: the options of a pipeline, and its validation without Spark.
- `service`: stores pipelines in a compacted topic, supervises them and serves an HTTP interface like
  Connect's.
- `spark`: runs one pipeline in its own process and reports its `progress`.

Importing this package imports no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.pipelines.spark.pipeline import Pipeline

__all__ = ["Pipeline"]


def __getattr__(name: str) -> Any:
    if name == "Pipeline":
        from barnabas.pipelines.spark.pipeline import Pipeline  # noqa: PLC0415 - the import is expensive and rarely needed

        return Pipeline
    raise AttributeError(name)
