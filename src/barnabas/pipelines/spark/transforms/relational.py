"""Transforms that see the rows as a table: SQL, a condition, a function of the user's."""

from __future__ import annotations

import importlib

from pyspark.sql import DataFrame

from barnabas.pipelines.spark.run import PipelineFailed, Run
from barnabas.pipelines.spec.model import Part
from barnabas.security.secret_references import resolve


def sql(rows: DataFrame, part: Part, run: Run) -> DataFrame:
    """Every run has a session of its own, so that the view `input` belongs to it alone."""
    rows.createOrReplaceTempView("input")
    return run.spark.sql(part["query"])


def keep(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    return rows.where(part["where"])


def python(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    place: str = part["function"]
    module, colon, name = place.partition(":")
    if not colon:
        raise PipelineFailed(f"{place!r} is not of the form module:function")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise PipelineFailed(f"the transform {place} cannot be loaded: {error}") from error
    result = function(rows, **(resolve(part.get("arguments")) or {}))
    if not isinstance(result, DataFrame):
        raise PipelineFailed(f"{place} returned {type(result).__name__}, not a DataFrame")
    return result
