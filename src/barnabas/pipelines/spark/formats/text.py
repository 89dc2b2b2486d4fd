"""Decoding of text, JSON and CSV, with errors for values that Spark's parsers change silently.

Spark's parsers are lenient. A record that they would change becomes a bad record, with its original bytes:

- bytes that are not UTF-8, and escapes of half a character, which Spark replaces;
- text after the first JSON object of a value, which Spark drops;
- decimals with more digits than their column, which Spark rounds. They are parsed with more digits first, and
  must be equal in the column's own type. A type without room for more digits is compared with the text;
- with an inferred schema, fields that no sample had, which Spark drops. A given schema names the wanted
  fields.

Connect's JsonConverter writes `{"schema": …, "payload": …}` unless `schemas.enable` is false. With
`envelope`, the payload is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.formats.arrow import Decoded

CORRUPT: Final = "_corrupt_record"
PAYLOAD: Final = "payload"
ENVELOPE: Final = ("payload", "schema")
"""Fields of Connect's envelope, sorted; it has no others."""
NO_ENVELOPE, CONNECT_ENVELOPE = "none", "connect"
HALF_A_CHARACTER: Final = (
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F])"
)
STRINGS: Final = r'"(?:[^"\\]|\\.)*"'
NEXT_OBJECT: Final = r"\}\s*\{"
PRECISION_MAX: Final = 38
MORE_DIGITS: Final = 18
PLACES: Final = r"^\s*[-+]?\d*\.(\d*?)0*\s*$"
"""The places of a decimal, without zeros at the end."""


class _Parsed(NamedTuple):
    value: Column
    """Struct of the columns, with wider decimals; null for JSON's null."""
    corrupt: Column
    """Text of a record that the parser could not read; else null."""


def text_decoder(
    schema: T.StructType, what: str, options: Mapping[str, str], *, envelope: str = NO_ENVELOPE,
    is_inferred: bool = False,
) -> Callable[[Column], Decoded]:  # fmt: skip
    wide = T.StructType([T.StructField(each.name, _wide(each.dataType)) for each in schema.fields])
    given = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, **options}

    def parse(text: Column) -> _Parsed:
        if what == "CSV":
            parsed = F.from_csv(text, T.StructType([*wide.fields, _corrupt()]).toDDL(), given)
            return _Parsed(_fields(parsed, wide), parsed[CORRUPT])
        plain = F.from_json(text, T.StructType([*wide.fields, _corrupt()]), given)
        if envelope == NO_ENVELOPE:
            return _Parsed(_fields(plain, wide), plain[CORRUPT])
        wrapped = F.from_json(text, T.StructType([T.StructField(PAYLOAD, wide), _corrupt()]), given)
        is_wrapped = _is_envelope(text)
        return _Parsed(
            F.when(is_wrapped, wrapped[PAYLOAD]).otherwise(_fields(plain, wide)),
            F.when(is_wrapped, wrapped[CORRUPT]).otherwise(plain[CORRUPT]),
        )

    def decode(value: Column) -> Decoded:
        text = value.cast("string")
        parsed = parse(text)
        fitted = _fitted(parsed.value, wide, schema)
        errors = [utf8_error(text, "value"), *_text_errors(text, what)]
        if envelope == CONNECT_ENVELOPE:
            errors.append(F.when(text.isNotNull() & ~_is_envelope(text), F.lit(NOT_WRAPPED)))
        broken = F.lit(f"the value is not {what} of the schema {schema.simpleString()}")
        errors.append(F.when(parsed.corrupt.isNotNull(), broken))
        if what == "JSON":
            errors.append(F.when(_goes_on(text), F.lit("the value has text after its JSON object")))
        errors += _decimal_errors(parsed.value, fitted, wide, schema)
        digits = _csv_digits(text, schema, options) if what == "CSV" else _json_digits(text, envelope)
        errors += _long_decimal_errors(fitted, schema, digits)
        if is_inferred:
            inner = text
            if envelope != NO_ENVELOPE:
                inner = F.when(_is_envelope(text), F.get_json_object(text, f"$.{PAYLOAD}")).otherwise(text)
            errors.append(_unknown_error(inner, schema))
        return Decoded(fitted, F.coalesce(*errors), is_null=value.isNull() | parsed.value.isNull())

    return decode


NOT_WRAPPED: Final = (
    "the value is not Connect's envelope of 'schema' and 'payload'; records without it need"
    " value.converter.schemas.enable=false (in a spec, envelope: none)"
)


def plain_text(value: Column) -> Decoded:
    """Value that is one column of text."""
    text = value.cast("string")
    return Decoded(text, utf8_error(text, "value"), is_struct=False)


def unwrapped(sample: str, envelope: str) -> str:
    """Payload of a sampled record, if it is in an envelope."""
    if envelope == NO_ENVELOPE:
        return sample
    try:
        found = json.loads(sample)
    except ValueError:
        return sample
    is_wrapped = isinstance(found, dict) and tuple(sorted(found)) == ENVELOPE
    return json.dumps(found[PAYLOAD]) if is_wrapped else sample


def _corrupt() -> T.StructField:
    return T.StructField(CORRUPT, T.StringType())


def _fields(parsed: Column, schema: T.StructType) -> Column:
    """Struct without the parser's own column."""
    rows = F.struct(*(parsed.getField(each.name).alias(each.name) for each in schema.fields))
    return F.when(parsed.isNotNull(), rows)


def _is_envelope(text: Column) -> Column:
    names = F.array_sort(F.json_object_keys(text))
    return F.coalesce(names == F.array(*map(F.lit, ENVELOPE)), F.lit(False))


def utf8_error(text: Column, what: str) -> Column:
    return F.when(~F.is_valid_utf8(text), F.lit(f"the {what} is not UTF-8"))


def _text_errors(text: Column, what: str) -> Iterator[Column]:
    if what == "JSON":
        yield F.when(F.trim(text) == "", F.lit("the value is empty, which is not JSON"))
        half = F.contains(text, F.lit("\\u")) & text.rlike(HALF_A_CHARACTER)
        yield F.when(half, F.lit("the value has an escape of half a character (a lone surrogate)"))


def _goes_on(text: Column) -> Column:
    """True if text follows the first object, which is all that Spark's parser reads."""
    bare = F.regexp_replace(text, STRINGS, "")
    return ~text.rlike(r"\}\s*\z") | (text.rlike(NEXT_OBJECT) & bare.rlike(NEXT_OBJECT))


def _wide(kind: T.DataType) -> T.DataType:
    """Type with more decimal digits, so that a value that would be rounded shows."""
    if isinstance(kind, T.DecimalType):
        scale = min(PRECISION_MAX - (kind.precision - kind.scale), kind.scale + MORE_DIGITS)
        return T.DecimalType(PRECISION_MAX, max(scale, kind.scale))
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(each.name, _wide(each.dataType)) for each in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_wide(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(kind.keyType, _wide(kind.valueType))
    return kind


def _fitted(parsed: Column, wide: T.StructType, schema: T.StructType) -> Column:
    if wide.simpleString() == schema.simpleString():
        return parsed
    columns = [_narrowed(parsed, each, wide[each.name]).alias(each.name) for each in schema.fields]
    return F.when(parsed.isNotNull(), F.struct(*columns))


def _narrowed(parsed: Column, field: T.StructField, wide: T.StructField) -> Column:
    column = parsed.getField(field.name)
    return column if wide.dataType == field.dataType else column.try_cast(field.dataType)


def _decimal_errors(
    parsed: Column, fitted: Column, wide: T.StructType, schema: T.StructType
) -> Iterator[Column]:
    for each in schema.fields:
        kind = wide[each.name].dataType
        if kind.simpleString() == each.dataType.simpleString():
            continue
        again = fitted.getField(each.name).cast(kind)
        is_same = _comparable(again, kind).eqNullSafe(_comparable(parsed.getField(each.name), kind))
        yield F.when(~is_same, F.lit(_no_fit(each)))


def _no_fit(field: T.StructField) -> str:
    return f"a decimal of column {field.name} does not fit {field.dataType.simpleString()}"


def _comparable(column: Column, kind: T.DataType) -> Column:
    """Column that Spark compares; it does not compare maps."""
    return F.to_json(F.struct(column.alias("v"))) if "map<" in kind.simpleString() else column


def _long_decimal_errors(
    fitted: Column, schema: T.StructType, digits_of: Callable[[str], Column]
) -> Iterator[Column]:
    """Errors of columns whose decimals are too long for a wider type to show what was rounded."""
    for each in schema.fields:
        kind = each.dataType
        if not isinstance(kind, T.DecimalType) or not _is_long(kind):
            continue
        digits = digits_of(each.name)
        is_cut = F.length(F.regexp_extract(digits, PLACES, 1)) > kind.scale
        is_other = digits.try_cast("double") != fitted.getField(each.name).cast("double")
        yield F.when(is_cut | (digits.rlike("[eE]") & is_other), F.lit(_no_fit(each)))


def _json_digits(text: Column, envelope: str) -> Callable[[str], Column]:
    """Digits of a column as they are in the JSON text.

    A variant keeps the digits of a decimal, up to the longest that Spark has. Numbers with an exponent are
    doubles in it.
    """
    variant = F.try_parse_json(text)

    def digits_of(name: str) -> Column:
        if "'" in name:
            return F.lit(None).cast("string")  # such a name has no path
        plain = F.try_variant_get(variant, f"$['{name}']", "string")
        if envelope == NO_ENVELOPE:
            return plain
        wrapped = F.try_variant_get(variant, f"$.{PAYLOAD}['{name}']", "string")
        return F.when(_is_envelope(text), wrapped).otherwise(plain)

    return digits_of


def _csv_digits(text: Column, schema: T.StructType, options: Mapping[str, str]) -> Callable[[str], Column]:
    """Digits of a column as they are in the CSV text."""
    texts = T.StructType([T.StructField(each.name, T.StringType()) for each in schema.fields])
    parsed = F.from_csv(text, texts.toDDL(), dict(options))
    return parsed.getField


def _is_long(kind: T.DataType) -> bool:
    return isinstance(kind, T.DecimalType) and kind.precision + MORE_DIGITS > PRECISION_MAX


def _unknown_error(text: Column, schema: T.StructType) -> Column:
    extra = F.array_except(F.json_object_keys(text), _names(schema))
    named = F.concat(
        F.lit("the value has fields that the inferred schema lacks ("),
        F.array_join(extra, ", "),
        F.lit("); give the source a 'schema', or start again with more 'samples'"),
    )
    errors = [F.when(F.size(extra) > 0, named)]
    for each in schema.fields:
        inside = _has_unknown(_inner(text, each.name), each.dataType)
        if inside is not None:
            message = (
                f"column {each.name} has fields that the inferred schema lacks; give the source a 'schema'"
            )
            errors.append(F.when(inside, F.lit(message)))
    return F.coalesce(*errors)


def _has_unknown(text: Column, kind: T.DataType) -> Column | None:
    if isinstance(kind, T.StructType):
        found = [F.size(F.array_except(F.json_object_keys(text), _names(kind))) > 0]
        nested = (_has_unknown(_inner(text, each.name), each.dataType) for each in kind.fields)
        found += [each for each in nested if each is not None]
        return F.coalesce(reduce(lambda left, right: left | right, found), F.lit(False))
    if isinstance(kind, T.ArrayType) and isinstance(kind.elementType, T.StructType):
        element = kind.elementType

        def is_unknown(each: Column) -> Column:
            inside = _has_unknown(each, element)
            assert inside is not None
            return inside

        return F.coalesce(F.exists(F.from_json(text, "array<string>"), is_unknown), F.lit(False))
    return None


def _inner(text: Column, name: str) -> Column:
    return F.get_json_object(text, f"$['{name}']")


def _names(schema: T.StructType) -> Column:
    return F.array(*(F.lit(each.name) for each in schema.fields)).cast("array<string>")
