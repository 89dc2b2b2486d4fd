"""Transforms over the rows as a table: SQL, a condition, a user's function."""

from __future__ import annotations

import importlib

from pyspark.sql import DataFrame

from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
from barnabas.pipelines.spec.model import Part
from barnabas.security.identity.secret_references import resolve


def sql(rows: DataFrame, part: Part, run: Run) -> DataFrame:
    """SQL query. Every run has its own session, so the view `input` belongs to it alone."""
    rows.createOrReplaceTempView("input")
    return run.spark.sql(part["query"])


def keep(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    return rows.where(part["where"])


def python(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    reference: str = part["function"]
    module, colon, name = reference.partition(":")
    if not colon:
        raise PipelineFailed(f"{reference!r} is not of the form module:function")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise PipelineFailed(f"the transform {reference} cannot be loaded: {error}") from error
    result = function(rows, **(resolve(part.get("arguments")) or {}))
    if not isinstance(result, DataFrame):
        raise PipelineFailed(f"{reference} returned {type(result).__name__}, not a DataFrame")
    return result
