"""Data pipelines on Spark Structured Streaming: the role of Kafka Connect.

`spec` is what a pipeline says, judged without Spark. `service` keeps pipelines in a compacted topic,
supervises them and answers a Connect-shaped HTTP interface. `spark` runs one, in a process of its own,
and reports its `progress`. Importing this package imports no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.pipelines.spark.pipeline import Pipeline

__all__ = ["Pipeline"]


def __getattr__(name: str) -> Any:
    if name == "Pipeline":
        from barnabas.pipelines.spark.pipeline import Pipeline  # noqa: PLC0415 - it is heavy, and rarely asked for

        return Pipeline
    raise AttributeError(name)
