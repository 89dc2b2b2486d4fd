"""Decoding of records to columns; undecodable records keep their bytes.

Every record becomes a row with the columns of its value and its coordinates (`_key`, `_topic`, `_partition`,
`_offset`, `_timestamp`, perhaps `_headers`). An undecodable record has an error text instead. With tolerance
`none` that error stops the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.types import StructType

from barnabas.pipelines.spark.columns.columns import quoted
from barnabas.pipelines.spark.context.run_context import Away, PipelineFailed, Rows, Run
from barnabas.pipelines.spark.formats.arrow import Decoded
from barnabas.pipelines.spark.formats.avro import avro_decoder
from barnabas.pipelines.spark.formats.protobuf import protobuf_decoder
from barnabas.pipelines.spark.formats.text import CORRUPT, plain_text, text_decoder, unwrapped, utf8_error
from barnabas.pipelines.spark.state.state_files import read_note, write_note
from barnabas.pipelines.spec.model import Part, Tolerance
from barnabas.pipelines.spec.options.reserved_words import IS_TOMBSTONE, RESERVED

OBSERVATION = "decoded"
"""Name of the metric with the counts of records and errors in a micro-batch's progress."""
RECORD_COLUMNS = {
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
}

_SEPARATOR = "\x1e"
"""Separator between the texts of a list: ASCII's record separator."""

Samples = Callable[[int], list[bytes]]


def decode(records: DataFrame, part: Part, run: Run, samples: Samples) -> Rows:
    """Decode `records`, which has the columns of Spark's Kafka source."""
    value = decoder(part, run, samples)(F.col("value"))
    key, key_error = _key(part)
    placed = records.select(
        "*",
        value.value.alias("_v"),
        key.alias("_key"),
        F.coalesce(value.error, key_error, _set_aside(run)).alias("_error"),
        (F.col("value").isNull() if value.is_null is None else value.is_null).alias(IS_TOMBSTONE),
    )
    return split(placed, part, run, is_struct=value.is_struct)


def split(placed: DataFrame, part: Part, run: Run, *, is_struct: bool) -> Rows:
    """Good and bad rows, from rows with `_v`, `_key`, `_error` and `_tombstone` beside the record's."""
    observed = counted(placed, "_error", run)
    fine = F.col("_error").isNull()
    if run.spec.errors.tolerance is Tolerance.NONE:
        fine = F.when(fine, F.lit(True)).otherwise(F.raise_error(_complaint()).cast("boolean"))
    good = observed.where(fine).select(*_columns(placed, part, is_struct=is_struct))
    wanted = run.spec.errors.dead_letter_topic is not None
    return Rows(good, _bad(placed) if wanted else None)


def counted(rows: DataFrame, error: str, run: Run) -> DataFrame:
    """`rows`, with the counts of records and errors in the micro-batch's progress."""
    if not run.is_main_source:
        return rows
    return rows.observe(OBSERVATION, F.count(F.lit(1)).alias("records"), F.count(error).alias("errors"))


def decoder(part: Part, run: Run, samples: Samples) -> Callable[[Column], Decoded]:
    kind = part["format"]
    nothing = F.lit(None).cast("string")
    if kind == "raw":
        return lambda value: Decoded(value, nothing, is_struct=False)
    if kind == "text":
        return plain_text
    options = part.get("format_options", {})
    if kind == "json":
        given = _given(part)
        schema = given or inferred(part, run, samples)
        return text_decoder(schema, "JSON", options, envelope=part["envelope"], is_inferred=given is None)
    if kind == "csv":
        return text_decoder(struct_of(part["schema"]), "CSV", options)
    if kind == "avro":
        return avro_decoder(part, run)
    return protobuf_decoder(part, run)


def inferred(part: Part, run: Run, samples: Samples) -> StructType:
    """Schema of sampled JSON records, kept so that a restart has the same columns."""
    location = run.checkpoint("schema")
    known = read_note(run, location)
    if known is not None:
        return struct_of(known)
    values = [
        unwrapped(value.decode("utf-8", "replace"), part["envelope"]) for value in samples(part["samples"])
    ]
    found = run.spark.read.json(run.spark.sparkContext.parallelize(values, 1), mode="DROPMALFORMED").schema
    if not found.fields:
        raise Away("there are no JSON records yet to infer a schema from; give the source a 'schema'")
    write_note(run, location, found.toDDL())
    return found


def _given(part: Part) -> StructType | None:
    text = part.get("schema")
    return None if text is None else struct_of(text)


def struct_of(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def _key(part: Part) -> tuple[Column, Column]:
    nothing = F.lit(None).cast("string")
    kind = part.get("key_format", "raw")
    if kind == "raw":
        return F.col("key"), nothing
    text = F.col("key").cast("string")
    if kind == "text":
        return text, utf8_error(text, "key")
    parsed = F.from_json(text, part["key_schema"], {"mode": "PERMISSIVE"})
    bad = F.col("key").isNotNull() & parsed.isNull()
    return parsed, F.coalesce(
        utf8_error(text, "key"), F.when(bad, F.lit("the key is not JSON of its schema"))
    )


def _columns(placed: DataFrame, part: Part, *, is_struct: bool) -> list[Column]:
    kept = [
        F.col("_key"),
        *(
            quoted(name).alias(reserved)
            for name, reserved in RECORD_COLUMNS.items()
            if name in placed.columns
        ),
    ]
    if "headers" in placed.columns and part.get("headers") is not False:
        kept.append(F.col("headers").alias("_headers"))
    kept.append(F.col(IS_TOMBSTONE))
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


def record_id_of_row() -> Column:
    """Record id, as in `Run.quarantine`."""
    return F.concat_ws("/", "topic", "partition", "offset")


def _set_aside(run: Run) -> Column:
    """Reason why a record is in quarantine; null for all others."""
    if not run.quarantine:
        return F.lit(None).cast("string")
    reasons = F.map_from_arrays(_list(run.quarantine.keys()), _list(run.quarantine.values()))
    return F.when(is_quarantined(run), reasons[record_id_of_row()])


def is_quarantined(run: Run) -> Column:
    """True if a row of the source is in quarantine, by its columns topic, partition and offset."""
    return F.array_contains(_list(run.quarantine.keys()), record_id_of_row())


def _list(texts: Iterable[str]) -> Column:
    """Array of texts from one literal that Spark splits once: an expression per text would make an unbounded
    plan."""
    whole = _SEPARATOR.join(each.replace(_SEPARATOR, " ") for each in texts)
    return F.split(F.lit(whole), _SEPARATOR, -1)


def _complaint() -> Column:
    where = F.format_string("topic %s, partition %s, offset %s: ", "topic", "partition", "offset")
    return F.concat(where, F.col("_error"))
