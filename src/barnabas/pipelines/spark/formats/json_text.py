"""Columns to JSON, with microseconds where a timestamp has them.

Spark writes timestamps with milliseconds and drops smaller digits. A value with microseconds is written with
six digits; all others keep the three that consumers know.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

MICROSECONDS: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS[XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def json_of(value: Column, kind: T.DataType, options: Mapping[str, str]) -> Column:
    """JSON text of a struct or array. Timestamp formats in `options` take precedence."""
    plain = F.to_json(value, dict(options))
    fine = _has_microseconds(value, kind)
    if fine is None or MICROSECONDS.keys() & options.keys():
        return plain
    return F.when(fine, F.to_json(value, {**options, **MICROSECONDS})).otherwise(plain)


def _has_microseconds(value: Column, kind: T.DataType) -> Column | None:
    """True if a timestamp inside `value` has microseconds; None where no timestamp is possible."""
    if isinstance(kind, (T.TimestampType, T.TimestampNTZType)):
        return F.coalesce(F.unix_micros(value.cast("timestamp")) % 1_000 != 0, F.lit(False))
    if isinstance(kind, T.StructType):
        inner = [_has_microseconds(value.getField(each.name), each.dataType) for each in kind.fields]
        found = [each for each in inner if each is not None]
        return reduce(lambda left, right: left | right, found) if found else None
    if isinstance(kind, T.ArrayType):
        return _any(value, kind.elementType)
    if isinstance(kind, T.MapType):
        return _any(F.map_values(value), kind.valueType)
    return None


def _any(values: Column, kind: T.DataType) -> Column | None:
    if _has_microseconds(F.lit(None), kind) is None:
        return None

    def is_fine(each: Column) -> Column:
        found = _has_microseconds(each, kind)
        assert found is not None
        return found

    return F.coalesce(F.exists(values, is_fine), F.lit(False))
