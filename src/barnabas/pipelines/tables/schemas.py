"""Comparison of the rows' columns with the table's, and the change of rows into the table's types.

Rows and table may differ: a column is new, is missing, or has another type. A value is never changed
silently. A number goes into a column of another number type only if that type holds it exactly. A column
whose type cannot hold the rows' type at all (text into numbers) takes nulls only. The error of a row that
does not fit names the column, and the pipeline treats it as a bad record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_PLAIN = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


class DoesNotFit(ValueError):
    """A value that the table's column cannot hold."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between the rows' columns and the table's."""

    added: tuple[pa.Field, ...] = ()
    """Columns that the table lacks."""
    widened: tuple[pa.Field, ...] = ()
    """Columns whose type in the table is to become that of the rows."""
    unfit: Mapping[str, str] = field(default_factory=dict)
    """Columns of the table that hold no value of the rows' type, with the reason."""

    @property
    def changes_table(self) -> bool:
        return bool(self.added or self.widened)


def difference(rows: pa.Schema, table: pa.Schema, *, can_widen: bool) -> Difference:
    added, widened, unfit = [], [], {}
    by_lower = {name.lower(): name for name in table.names}
    for each in rows:
        at = table.get_field_index(each.name)
        if at < 0 and each.name.lower() in by_lower:
            raise DoesNotFit(
                f"column {each.name} is {by_lower[each.name.lower()]} in the table; write it in the same way:"
                " many readers do not tell upper case from lower"
            )
        if at < 0:
            added.append(pa.field(each.name, each.type))
            continue
        there = plain(table.field(at).type)
        here = plain(each.type)
        if here == there:
            continue
        if can_widen and is_wider(here, there):
            widened.append(pa.field(each.name, each.type))
        elif not fits_by_value(here, there):
            unfit[each.name] = f"column {each.name} is {here}, and {there} in the table"
    return Difference(tuple(added), tuple(widened), unfit)


def is_wider(here: pa.DataType, there: pa.DataType) -> bool:
    """True where formats with promotion (Iceberg) widen `there` into `here`."""
    if pt.is_decimal(here) and pt.is_decimal(there):
        return bool(here.scale == there.scale and here.precision > there.precision)
    return (there, here) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def fits_by_value(here: pa.DataType, there: pa.DataType) -> bool:
    """True where a type holds some values of another exactly, and the cast of all others is an error."""
    if pt.is_integer(here) or pt.is_decimal(here):
        return bool(
            pt.is_integer(there) or pt.is_decimal(there) or (pt.is_integer(here) and pt.is_float64(there))
        )
    return bool(pt.is_float32(here) and pt.is_float64(there))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with exactly the columns of `schema`; DoesNotFit if a value would have to change."""
    columns = []
    for each in schema:
        at = batch.schema.get_field_index(each.name)
        columns.append(pa.nulls(batch.num_rows, each.type) if at < 0 else _column(batch.column(at), each))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: pa.Array, wanted: pa.Field) -> pa.Array:
    if values.type == wanted.type:
        return values
    here, there = plain(values.type), plain(wanted.type)
    if here != there and not fits_by_value(here, there) and not is_wider(there, here):
        if values.null_count == len(values):
            return pa.nulls(len(values), wanted.type)
        raise DoesNotFit(f"column {wanted.name} is {here}, and {there} in the table")
    try:
        return pc.cast(values, wanted.type)
    except pa.ArrowInvalid as error:
        raise DoesNotFit(f"column {wanted.name} is {there} in the table: {error}") from None


def plain(kind: pa.DataType) -> pa.DataType:
    """Type without the differences that no table format knows: large offsets, names of list elements, ids."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pt.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pt.is_list(kind) or pt.is_large_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if pt.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pt.is_struct(kind):
        return pa.struct([pa.field(each.name, plain(each.type)) for each in kind])
    return kind


def with_ids_small(field: pa.Field) -> pa.Field:
    """Field with the same ids and 32-bit offsets. The ids are in the metadata of fields at every depth."""
    kind = field.type
    if pt.is_large_list(kind) or pt.is_list(kind):
        small: pa.DataType = pa.list_(with_ids_small(kind.value_field))
    elif pt.is_map(kind):
        small = pa.map_(with_ids_small(kind.key_field), with_ids_small(kind.item_field))
    elif pt.is_struct(kind):
        small = pa.struct([with_ids_small(each) for each in kind])
    else:
        small = plain(kind)
    return pa.field(field.name, small, field.nullable, field.metadata)
