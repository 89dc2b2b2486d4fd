"""Data pipelines on Spark Structured Streaming: the role of Kafka Connect.

A pipeline is a spec (`spec`), judged without Spark (`validation`), run by a driver (`runner`,
`driver`), kept in a compacted topic (`store`), kept alive by a supervisor (`supervisor`), and
steered over a Connect-shaped HTTP interface (`rest`). Importing this package imports no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.pipelines.pipeline import Pipeline

__all__ = ["Pipeline"]


def __getattr__(name: str) -> Any:
    if name == "Pipeline":
        from barnabas.pipelines.pipeline import Pipeline  # noqa: PLC0415 - it is heavy, and rarely asked for

        return Pipeline
    raise AttributeError(name)
