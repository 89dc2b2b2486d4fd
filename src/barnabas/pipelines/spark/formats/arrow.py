"""Decoders and encoders in Python over Arrow columns, for formats without a Spark function.

A codec is a function from a record's bytes to a mapping (or back), made once in each worker from plain data.
A record that it cannot decode gives an error text instead of a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from barnabas.pipelines.spark.formats.registry import RegistryError

ReadOne = Callable[[bytes], Mapping[str, Any] | None]
WriteOne = Callable[[Mapping[str, Any]], bytes]
MESSAGE_LENGTH_MAX = 300


class Decoded(NamedTuple):
    """A struct of the value's columns (or its only column), and the error, if any."""

    value: Column
    error: Column
    is_struct: bool = True
    is_null: Column | None = None
    """True if the value is null; None where only a record without bytes is null."""


def arrow_decoder(make: Callable[[], ReadOne], schema: StructType, what: str) -> Callable[[Column], Decoded]:
    result = StructType([StructField("value", schema), StructField("error", StringType())])
    arrow = to_arrow_type(schema, timezone="UTC")

    def decode(values: pa.Array) -> pa.Array:
        read = make()
        rows: list[Mapping[str, Any] | None] = []
        errors: list[str | None] = []
        for value in values.to_pylist():
            row, error = None, None
            if value is not None:
                try:
                    row = read(value)
                except RegistryError:
                    # The record is not at fault: the batch is retried.
                    raise
                except Exception as failure:  # noqa: BLE001 - any exception comes from these bytes
                    error = f"the value is not {what}: {type(failure).__name__}: {failure}"[
                        :MESSAGE_LENGTH_MAX
                    ]
            rows.append(row)
            errors.append(error)
        columns = [pa.array(rows, type=arrow), pa.array(errors, type=pa.string())]
        return pa.StructArray.from_arrays(columns, ["value", "error"])

    function = arrow_udf(decode, result)  # type: ignore[call-overload]

    def apply(value: Column) -> Decoded:
        outcome = function(value)
        return Decoded(outcome.getField("value"), outcome.getField("error"))

    return apply


def arrow_encoder(make: Callable[[], WriteOne]) -> Callable[[Column], Column]:
    def encode(values: pa.Array) -> pa.Array:
        write = make()
        rows = values.to_pylist(maps_as_pydicts="strict")
        return pa.array([None if row is None else write(row) for row in rows], type=pa.binary())

    function: Callable[[Column], Column] = arrow_udf(encode, BinaryType())  # type: ignore[call-overload]
    return function
