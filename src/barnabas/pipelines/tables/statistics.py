"""Statistics of a data file for Delta's log: rows, nulls, and the least and greatest value of each column.

They come from the footer that Parquet's writer has made, so no value is looked at twice. A reader skips
files by them. So they may be missing, but never too narrow:

- Parquet ignores NaN, which is greater than any number for some readers. Floating point has no bounds here.
- Bounds of long texts may be cut in the footer. Only short ones count.
- JSON has no exact decimals. Decimals have no bounds here.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow.parquet as pq

TEXT_CHARACTERS_MAX = 32
_BOUNDED = (bool, int, str, dt.datetime, dt.date)


def statistics_of(footer: pq.FileMetaData) -> dict[str, Any]:
    """`numRecords`, `minValues`, `maxValues` and `nullCount`, with plain columns only."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for at in range(footer.num_columns):
        name = footer.schema.column(at).path
        if "." in name:
            continue  # a field of a nested column, or a name that looks like one
        found = [footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)]
        if any(each is None or not each.has_null_count for each in found):
            continue
        nulls[name] = sum(each.null_count for each in found)
        bounds = [(each.min, each.max) for each in found if each.has_min_max]
        is_whole = len(bounds) == sum(each.num_values > 0 for each in found)
        if bounds and is_whole and all(_is_bounded(value) for pair in bounds for value in pair):
            least[name] = _as_json(min(low for low, _ in bounds))
            greatest[name] = _as_json(max(high for _, high in bounds))
    return {
        "numRecords": footer.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }


def _is_bounded(value: Any) -> bool:
    return isinstance(value, _BOUNDED) and not (isinstance(value, str) and len(value) > TEXT_CHARACTERS_MAX)


def _as_json(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, dt.date) else value
