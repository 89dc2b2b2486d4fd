"""JSON records to Arrow columns without Spark, where both parsers certainly agree.

Arrow parses a megabyte of records in a fifth of the time of Spark's parser, and the rows are columns already.
But the decoder of pipelines (`formats.text`) has rules of its own for records that are unusual. So this one
decodes only plain records, and raises `Doubtful` for all others. Its caller then decodes them with Spark.

Plain is what Arrow's strict parser accepts in the column's own type, with these exceptions, which differ:

- Two objects in one value. Every value begins and ends with a brace, and there are as many rows as values.
  A value is at least one object, because no string or object continues after the line break between values.
- `NaN`, `Inf` and `Infinity`, which Arrow takes as numbers everywhere, and Spark with other spellings.
- Depths, numbers and names beyond the limits of Spark's parser.
- Zeros with a sign, and numbers that no double holds.
- Times and dates in other forms than ISO 8601 with an offset. Spark accepts many.
- Bytes that are not UTF-8.

`tests/spark/pipelines/test_plain_json.py` compares both decoders on values that are made to differ.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.types as pt

ROWS_MAX: Final = 50_000
"""Rows that are parsed at once; Arrow's parser has a limit of 100,000 for a block."""
VALUE_BYTES_MAX: Final = 48_000
"""Values beyond this size may hold a name that is too long for Spark's parser."""
DEPTH_MAX: Final = 900
DIGITS_MAX: Final = 900
"""Below the limit of 1,000 in Spark's parser."""
STRIDE: Final = 31
"""Distance of the bytes that show a long number. A prime, so that it differs from most periods of texts."""
LONG_NUMBER: Final = rf"[0-9]{{{DIGITS_MAX}}}"
SPECIAL_NUMBERS: Final = r"[:\[,]\s*-?(?:NaN|Inf)"
TIME: Final = r"\A[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d)\z"
DATE: Final = r"\A[1-9]\d{3}-\d\d-\d\d\z"
_NUMBERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64())
_OPEN, _CLOSED = b"{"[0], b"}"[0]


class Doubtful(Exception):
    """Values that Spark's decoder has to judge."""


def is_plain_type(kind: pa.DataType, *, nested: bool = False) -> bool:
    """True for types of columns that this module decodes."""
    if pt.is_struct(kind):
        return kind.num_fields > 0 and all(is_plain_type(each.type, nested=True) for each in kind)
    if pt.is_list(kind):
        return is_plain_type(kind.value_type, nested=True)
    if not nested and (pt.is_timestamp(kind) or pt.is_date32(kind)):
        return not pt.is_timestamp(kind) or kind.tz is not None
    return kind in _NUMBERS or pt.is_boolean(kind) or pt.is_string(kind)


def decode_plain(values: pa.Array, schema: pa.Schema, *, has_other_fields: bool = True) -> list[pa.Array]:
    """Columns of `schema` from JSON objects; Doubtful unless every value is plain.

    Fields that the schema lacks are left out, or are doubtful without `has_other_fields`.
    """
    if len(values) > ROWS_MAX:
        halves = (values.slice(0, ROWS_MAX), values.slice(ROWS_MAX))
        parts = [decode_plain(each, schema, has_other_fields=has_other_fields) for each in halves]
        return [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
    if not len(values):
        return [pa.array([], each.type) for each in schema]
    try:
        lines = _lines(values)
        parsed = pj.read_json(
            pa.BufferReader(lines),
            pj.ReadOptions(use_threads=False, block_size=lines.size + 1),
            pj.ParseOptions(
                explicit_schema=pa.schema([pa.field(each.name, _parsed_type(each.type)) for each in schema]),
                unexpected_field_behavior="ignore" if has_other_fields else "error",
            ),
        )
        if parsed.num_rows != len(values):
            raise Doubtful("values are not one object each")
        return [_column(parsed.column(each.name).combine_chunks(), each.type) for each in schema]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        raise Doubtful(str(error)) from None


def _lines(values: pa.Array) -> pa.Buffer:
    """The values with a line break after each."""
    if values.null_count:
        raise Doubtful("a value is missing")
    joined = pc.binary_join_element_wise(values.cast(pa.string()), "", "\n")
    _, offsets, data = joined.buffers()
    begins = np.frombuffer(offsets, np.int32)[joined.offset : joined.offset + len(joined) + 1]
    text = np.frombuffer(data, np.uint8)[begins[0] : begins[-1]]
    begins = begins - begins[0]
    sizes = np.diff(begins) - 1
    if sizes.min() < 2:
        raise Doubtful("a value is not an object")
    if (text[begins[:-1]] != _OPEN).any() or (text[begins[1:] - 2] != _CLOSED).any():
        raise Doubtful("a value is not an object")
    if sizes.max() > VALUE_BYTES_MAX:
        raise Doubtful("a value is large")
    _check_limits(text, joined, len(sizes))
    return data.slice(int(np.frombuffer(offsets, np.int32)[joined.offset]), len(text))


def _check_limits(text: np.ndarray[tuple[int], np.dtype[np.uint8]], lines: pa.Array, rows: int) -> None:
    whole = text.tobytes()
    if np.count_nonzero(text == _OPEN) + np.count_nonzero(text == b"["[0]) - rows > DEPTH_MAX:
        opened = pc.add(pc.count_substring(lines, "["), pc.count_substring(lines, "{"))
        if pc.max(opened).as_py() > DEPTH_MAX:
            raise Doubtful("a value is nested deeply")
    # A single letter is found ten times faster than a word.
    is_special = (b"N" in whole and b"NaN" in whole) or (b"I" in whole and b"Inf" in whole)
    if is_special and pc.any(pc.match_substring_regex(lines, SPECIAL_NUMBERS)).as_py():
        raise Doubtful("a number is special")
    seen = text[::STRIDE]
    others = np.flatnonzero((seen < b"0"[0]) | (seen > b"9"[0]))
    gaps = np.diff(others, prepend=-1, append=len(seen))
    if gaps.max() * STRIDE >= DIGITS_MAX and pc.any(pc.match_substring_regex(lines, LONG_NUMBER)).as_py():
        raise Doubtful("a number is long")


def _parsed_type(kind: pa.DataType) -> pa.DataType:
    """Times and dates are parsed as text: Arrow accepts other forms than Spark."""
    return pa.string() if pt.is_timestamp(kind) or pt.is_date32(kind) else kind


def _column(found: pa.Array, kind: pa.DataType) -> pa.Array:
    if pt.is_timestamp(kind) or pt.is_date32(kind):
        form = DATE if pt.is_date32(kind) else TIME
        if pc.all(pc.match_substring_regex(found, form)).as_py() is False:
            raise Doubtful("a time has another form")
        return pc.cast(found, kind)
    _check_doubles(found)
    return found


def _check_doubles(found: pa.Array) -> None:
    if pt.is_float64(found.type):
        numbers = found.drop_null().to_numpy()
        if not np.isfinite(numbers).all() or ((numbers == 0) & np.signbit(numbers)).any():
            raise Doubtful("a number is special")
    elif pt.is_struct(found.type):
        for each in found.flatten():
            _check_doubles(each)
    elif pt.is_list(found.type):
        _check_doubles(found.flatten())
