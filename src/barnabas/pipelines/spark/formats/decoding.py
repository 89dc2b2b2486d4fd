"""From the bytes of records to columns, permissively: what cannot be read is kept as it came.

Every record becomes a row with the columns of its value and of its place (`_key`, `_topic`,
`_partition`, `_offset`, `_timestamp`, perhaps `_headers`); one that cannot be read is told from
the others by an error in words. With tolerance `none` that error stops the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.types import StringType, StructField, StructType

from barnabas.pipelines.spark.formats.arrow import Decoded
from barnabas.pipelines.spark.formats.avro import avro_decoder
from barnabas.pipelines.spark.formats.protobuf import protobuf_decoder
from barnabas.pipelines.spark.notes import read_note, write_note
from barnabas.pipelines.spark.run import PipelineFailed, Rows, Run, Unavailable
from barnabas.pipelines.spark.transforms.columns import quoted
from barnabas.pipelines.spec.model import Part, Tolerance
from barnabas.pipelines.spec.reserved_words import RESERVED

CORRUPT = "_corrupt_record"
OBSERVATION = "decoded"
"""Name under which a micro-batch's progress tells how many records were read, and how many badly."""
PLACE = {"topic": "_topic", "partition": "_partition", "offset": "_offset", "timestamp": "_timestamp"}

Samples = Callable[[int], list[bytes]]


def decode(records: DataFrame, part: Part, run: Run, samples: Samples) -> Rows:
    """`records` has the columns of Spark's Kafka source."""
    value = decoder(part, run, samples)(F.col("value"))
    key, key_error = _key(part)
    placed = records.select(
        "*",
        value.value.alias("_v"),
        key.alias("_key"),
        F.coalesce(value.error, key_error, _set_aside(run)).alias("_error"),
    )
    return split(placed, part, run, is_struct=value.is_struct)


def split(placed: DataFrame, part: Part, run: Run, *, is_struct: bool) -> Rows:
    """Rows with `_v`, `_key` and `_error` beside the record's own columns, told apart."""
    observed = counted(placed, "_error", run)
    fine = F.col("_error").isNull()
    if run.spec.errors.tolerance is Tolerance.NONE:
        fine = F.when(fine, F.lit(True)).otherwise(F.raise_error(_complaint()).cast("boolean"))
    good = observed.where(fine).select(*_columns(placed, part, is_struct=is_struct))
    wanted = run.spec.errors.dead_letter_topic is not None
    return Rows(good, _bad(placed) if wanted else None)


def counted(rows: DataFrame, error: str, run: Run) -> DataFrame:
    """`rows`, whose number a micro-batch's progress tells, with that of those with an error."""
    if not run.is_main_source:
        return rows
    return rows.observe(OBSERVATION, F.count(F.lit(1)).alias("records"), F.count(error).alias("errors"))


def decoder(part: Part, run: Run, samples: Samples) -> Callable[[Column], Decoded]:
    kind = part["format"]
    nothing = F.lit(None).cast("string")
    if kind == "raw":
        return lambda value: Decoded(value, nothing, is_struct=False)
    if kind == "text":
        return lambda value: Decoded(value.cast("string"), nothing, is_struct=False)
    if kind == "json":
        schema = _given(part) or inferred(part, run, samples)
        return lambda value: _text(value, schema, part, "JSON")
    if kind == "csv":
        return lambda value: _text(value, struct_of(part["schema"]), part, "CSV")
    if kind == "avro":
        return avro_decoder(part, run)
    return protobuf_decoder(part, run)


def inferred(part: Part, run: Run, samples: Samples) -> StructType:
    """The schema of sampled JSON records; remembered, so that a restart sees the same columns."""
    place = run.checkpoint("schema")
    known = read_note(run, place)
    if known is not None:
        return struct_of(known)
    values = [value.decode("utf-8", "replace") for value in samples(part["samples"])]
    found = run.spark.read.json(run.spark.sparkContext.parallelize(values, 1), mode="DROPMALFORMED").schema
    if not found.fields:
        raise Unavailable("there are no JSON records yet to infer a schema from; give the source a 'schema'")
    write_note(run, place, found.toDDL())
    return found


def _given(part: Part) -> StructType | None:
    text = part.get("schema")
    return None if text is None else struct_of(text)


def struct_of(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def _text(value: Column, schema: StructType, part: Part, what: str) -> Decoded:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, **part.get("format_options", {})}
    widened = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    text = value.cast("string")
    if what == "JSON":
        parsed = F.from_json(text, widened, options)
    else:
        parsed = F.from_csv(text, widened.toDDL(), options)
    message = F.lit(f"the value is not {what} of the schema {schema.simpleString()}")
    return Decoded(parsed, F.when(parsed[CORRUPT].isNotNull(), message))


def _key(part: Part) -> tuple[Column, Column]:
    nothing = F.lit(None).cast("string")
    kind = part.get("key_format", "raw")
    if kind == "raw":
        return F.col("key"), nothing
    if kind == "text":
        return F.col("key").cast("string"), nothing
    parsed = F.from_json(F.col("key").cast("string"), part["key_schema"], {"mode": "PERMISSIVE"})
    bad = F.col("key").isNotNull() & parsed.isNull()
    return parsed, F.when(bad, F.lit("the key is not JSON of its schema"))


def _columns(placed: DataFrame, part: Part, *, is_struct: bool) -> list[Column]:
    kept = [
        F.col("_key"),
        *(quoted(name).alias(place) for name, place in PLACE.items() if name in placed.columns),
    ]
    if "headers" in placed.columns:
        kept.append(F.col("headers").alias("_headers"))
    if not is_struct:
        return [F.col("_v").alias("value"), *kept]
    struct = placed.schema["_v"].dataType
    assert isinstance(struct, StructType)
    names = [name for name in struct.fieldNames() if name != CORRUPT]
    if clash := set(names) & set(RESERVED):
        raise PipelineFailed(
            f"{part.type} has the reserved columns {', '.join(sorted(clash))}; leave them out of the schema"
        )
    return [*(F.col("_v").getField(name).alias(name) for name in names), *kept]


def _bad(placed: DataFrame) -> DataFrame:
    names = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
    present = [quoted(name) for name in names if name in placed.columns]
    return placed.where(F.col("_error").isNotNull()).select(*present, F.col("_error").alias("error"))


def place_of_row() -> Column:
    """As `Run.quarantine` names a record."""
    return F.concat_ws("/", "topic", "partition", "offset")


def _set_aside(run: Run) -> Column:
    """Why a record is in quarantine; null for all that are not."""
    place = place_of_row()
    reason = F.lit(None).cast("string")
    for each, why in run.quarantine.items():
        reason = F.when(place == each, F.lit(why)).otherwise(reason)
    return reason


def _complaint() -> Column:
    place = F.format_string("topic %s, partition %s, offset %s: ", "topic", "partition", "offset")
    return F.concat(place, F.col("_error"))
