"""A YAML pipeline as a declarative project: Python and `spark-pipeline.yml`.

The exported project gives the same rows. An option without a declarative form is refused by name. A
difference in behaviour is a comment in the Python:

- where the rows are (a table of Spark's catalogue instead of a directory);
- what happens to a bad record (Spark's own parser decides what is one);
- where Spark runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import NamedTuple

import yaml

from barnabas.pipelines.spec.analysis import WHOLE, after, source_columns
from barnabas.pipelines.spec.declarative.project import PREFIX
from barnabas.pipelines.spec.declarative.select import Select, simple_select
from barnabas.pipelines.spec.declarative.settings import MIN_INTERVAL
from barnabas.pipelines.spec.model import Delivery, Engine, Part, PipelineSpec, Restart, Tolerance
from barnabas.pipelines.spec.options.option import duration_ms
from barnabas.pipelines.spec.options.reserved_words import IS_TOMBSTONE, RESERVED
from barnabas.pipelines.spec.sql.columns import Columns
from barnabas.security.identity.secret_references import has_reference

LIBRARY = "transformations"
RECORD = ("topic", "partition", "offset", "timestamp")


class CannotExport(Exception):
    """The pipeline has parts that the declarative form cannot say; the message names each."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("\n".join(reasons))
        self.reasons = reasons


class Exported(NamedTuple):
    python: str
    project: str
    """Content of `spark-pipeline.yml`."""


def export(spec: PipelineSpec, bootstrap: str, storage: str) -> Exported:
    """The project; raises CannotExport with all reasons. `storage` is the URI of its checkpoints."""
    reasons = list(_reasons(spec))
    if reasons:
        raise CannotExport(reasons)
    return Exported(_python(spec, bootstrap), _project(spec, storage))


def _reasons(spec: PipelineSpec) -> Iterator[str]:
    if spec.project_file is not None:
        yield f"it is declarative already: {spec.project_file}"
        return
    yield from _source_reasons(spec)
    for at, part in enumerate(spec.transforms):
        yield from _transform_reasons(f"transforms.{at}", part)
    yield from _sink_reasons(spec)
    if spec.errors.dead_letter_topic is not None:
        yield "errors.dead_letter_topic: a declarative flow has one output, and no dead letters"
    elif spec.errors.tolerance is Tolerance.ALL:
        yield "errors.tolerance all: a declarative flow stops at a bad record"
    if spec.engine not in (Engine.AUTO, Engine.PYTHON):
        yield f"engine {spec.engine.value}: only the Python connector is exported"


def _source_reasons(spec: PipelineSpec) -> Iterator[str]:
    source = spec.source
    if source.type != "topic":
        yield f"source {source.type}: only topics are exported"
        return
    kind = source["format"]
    if kind not in ("json", "text", "raw"):
        yield f"source.format {kind}: Spark's declarative Python has no decoder for it here"
    if kind == "json" and not source.get("schema"):
        yield "source.schema is inferred from samples: a declarative table needs it written out"
    for name, plain in (("envelope", "none"), ("key_format", "raw")):
        if source.get(name, plain) != plain:
            yield f"source.{name} {source[name]}: the exported Python reads only {plain}"
    for name in ("watermark", "manifest", "format_options"):
        if source.get(name):
            yield f"source.{name}: is not exported"
    if has_reference(json.dumps({name: value for name, value in source.options.items() if name != "kafka"})):
        yield "source: references are resolved only in client settings"


def _transform_reasons(where: str, part: Part) -> Iterator[str]:
    if part.type == "sql":
        if simple_select(part["query"]) is None:
            yield f"{where}: the query is more than columns and a condition of input"
    elif part.type == "python":
        arguments = part.get("arguments") or {}
        yield from (
            f"{where}: the argument {each!r} is not a name" for each in arguments if not each.isidentifier()
        )
        if has_reference(json.dumps(arguments)):
            yield f"{where}: references in arguments are not resolved in a declarative pipeline"
    elif part.type not in ("filter", "deduplicate"):
        yield f"{where}: the transform {part.type} is not exported"


def _sink_reasons(spec: PipelineSpec) -> Iterator[str]:
    sink = spec.sink
    if sink.type == "topic":
        yield from _topic_reasons(spec)
    elif sink.type != "files":
        yield f"sink {sink.type}: a declarative table has no mark of its batches there"
    elif sink.get("format_options"):
        yield "sink.format_options: a declarative table has no options of its writer"


def _topic_reasons(spec: PipelineSpec) -> Iterator[str]:
    sink = spec.sink
    if spec.delivery is Delivery.EXACTLY_ONCE:
        yield (
            "sink topic with delivery exactly-once: a declarative sink writes at least once;"
            " set delivery: at-least-once first if that is enough"
        )
    if sink["format"] not in ("json", "text", "raw") or sink.get("format_options"):
        yield f"sink.format {sink['format']}: only json, text and raw are exported, without format_options"
    if not sink.get("topic"):
        yield "sink without topic: the column _topic cannot choose the topic of a declarative sink"
    if len(sink.get("key", ())) > 1:
        yield "sink.key with several columns is not exported"
    if spec.source.type == "topic" and _columns(spec).is_open:
        yield "the columns of the records are unknown before Spark runs"


def _python(spec: PipelineSpec, bootstrap: str) -> str:
    lines = [
        f'"""Pipeline {spec.name}, exported from YAML by `barnabas pipeline export`."""',
        "",
        "from pyspark import pipelines as dp",
        "from pyspark.sql import DataFrame, SparkSession",
        "from pyspark.sql import functions as F",
        *sorted({f"import {_module(part)}" for part in spec.transforms if part.type == "python"}),
        "",
        *(f"# {each}" for each in _notes(spec)),
        "",
        "",
    ]
    body = [*_reading(spec, bootstrap), *_decoding(spec), *_transforming(spec)]
    if spec.sink.type == "files":
        return "\n".join([*lines, *_table(spec), *body, *_columns_of_table(spec)]) + "\n"
    return "\n".join([*lines, *_topic(spec, bootstrap), *body, *_records(spec)]) + "\n"


def _notes(spec: PipelineSpec) -> Iterator[str]:
    if spec.sink.type == "files":
        yield f"The YAML pipeline writes {_text(spec.sink['path'])}. This table is in Spark's warehouse,"
        yield "and each record is in it once."
    else:
        yield "Records are written at least once, as in the YAML pipeline."
        if spec.sink["format"] == "json":
            yield "Spark writes timestamps with milliseconds, the YAML pipeline with microseconds if needed."
    if spec.source["format"] == "json":
        yield "A record that Spark's JSON parser refuses stops the update. The YAML pipeline is stricter:"
        yield "text after the object and decimals with more digits than their column stop it too."
    if spec.spark.master:
        yield f"The YAML pipeline runs on {_text(spec.spark.master)}: give spark-pipelines --master."
    if spec.trigger.available_now:
        yield "The YAML pipeline ends when it has caught up, as spark-pipelines does."


def _reading(spec: PipelineSpec, bootstrap: str) -> Iterator[str]:
    yield "    spark = SparkSession.active()"
    yield "    rows = ("
    yield '        spark.readStream.format("barnabas")'
    for name, value in _source_options(spec.source, bootstrap, has_headers=_has_headers(spec)).items():
        yield f"        .option({_text(name)}, {_text(value)})"
    yield "        .load()"
    yield "    )"


def _source_options(source: Part, bootstrap: str, *, has_headers: bool) -> Mapping[str, str]:
    options = {
        "kafka.bootstrap.servers": _bootstrap_of(source, bootstrap),
        **_client(source),
        "kafka.isolation.level": source["isolation_level"],
        "failOnDataLoss": str(source["fail_on_data_loss"]).lower(),
    }
    names = {
        "pattern": "subscribePattern",
        "assign": "assign",
        "starting_timestamp": "startingTimestamp",
        "max_offsets_per_trigger": "maxOffsetsPerTrigger",
        "min_partitions": "minPartitions",
    }
    if source.get("topics"):
        options["subscribe"] = ",".join(source["topics"])
    if not source.get("starting_timestamp"):
        options["startingOffsets"] = source.get("starting_offsets", "earliest")
    else:
        options["startingOffsetsByTimestampStrategy"] = "latest"
    if has_headers:
        options["includeHeaders"] = "true"
    return options | {
        theirs: str(source[ours]) for ours, theirs in names.items() if source.get(ours) is not None
    }


def _decoding(spec: PipelineSpec) -> Iterator[str]:
    source = spec.source
    coordinates = ['F.col("key").alias("_key")', *(f'F.col("{each}").alias("_{each}")' for each in RECORD)]
    if _has_headers(spec):
        coordinates.append('F.col("headers").alias("_headers")')
    if source["format"] == "json":
        yield f"    schema = {_text(source['schema'])}"
        yield '    parsed = F.from_json(F.col("value").cast("string"), schema, {"mode": "FAILFAST"})'
        yield '    value = [F.col("_value.*")]'
        yield '    tombstone = F.col("_value").isNull()'
        yield '    rows = rows.withColumn("_value", parsed)'
    else:
        kind = (
            'F.col("value")' if source["format"] == "raw" else 'F.col("value").cast("string").alias("value")'
        )
        yield f"    value = [{kind}]"
        yield '    tombstone = F.col("value").isNull()'
    yield "    rows = rows.select("
    yield "        *value,"
    for each in coordinates:
        yield f"        {each},"
    yield '        tombstone.alias("_tombstone"),'
    yield "    )"


def _transforming(spec: PipelineSpec) -> Iterator[str]:
    for part in spec.transforms:
        if part.type == "filter":
            yield f"    rows = rows.where({_text(part['where'])})"
        elif part.type == "sql":
            yield from _selecting(simple_select(part["query"]))
        elif part.type == "deduplicate":
            if part.get("time") is None:
                yield f"    rows = rows.dropDuplicates({_list(part['keys'])})"
            else:
                delay = f"{duration_ms(part['watermark'])} milliseconds"
                yield f"    rows = rows.withWatermark({_text(part['time'])}, {_text(delay)})"
                yield f"    rows = rows.dropDuplicatesWithinWatermark({_list(part['keys'])})"
        else:
            arguments = "".join(
                f", {name}={_text(value)}" for name, value in (part.get("arguments") or {}).items()
            )
            module, _, function = part["function"].partition(":")
            yield f"    rows = {module}.{function}(rows{arguments})"


def _selecting(select: Select | None) -> Iterator[str]:
    assert select is not None
    yield '    rows = rows.alias("input")'
    if select.where is not None:
        yield f"    rows = rows.where({_text(select.where)})"
    yield "    rows = rows.selectExpr("
    for each in select.columns:
        yield f"        {_text(each)},"
    yield "    )"


def _table(spec: PipelineSpec) -> Iterator[str]:
    arguments = [f"name={_text(_identifier(spec.name))}", f"format={_text(spec.sink['format'])}"]
    if spec.sink.get("partition_by"):
        arguments.append(f"partition_cols={_list(spec.sink['partition_by'])}")
    yield f"@dp.table({', '.join(arguments)})"
    yield f"def {_identifier(spec.name)}() -> DataFrame:"


def _columns_of_table(spec: PipelineSpec) -> Iterator[str]:
    """The columns that the sink `files` writes: those of the value, and those that make directories."""
    written = ", ".join(_text(each) for each in RESERVED if each not in (spec.sink.get("partition_by") or ()))
    yield f"    return rows.drop({written})"


def _topic(spec: PipelineSpec, bootstrap: str) -> Iterator[str]:
    sink = spec.sink
    options = {
        "kafka.bootstrap.servers": _bootstrap_of(sink, bootstrap),
        **_client(sink),
        "topic": sink["topic"],
        **({"includeHeaders": "true"} if _has_headers(spec) else {}),
        **({"compression": sink["compression"]} if sink.get("compression") else {}),
    }
    name = _identifier(spec.name)
    yield "dp.create_sink("
    yield f"    name={_text(name + '_topic')},"
    yield '    format="barnabas",'
    yield "    options={"
    for key, value in options.items():
        yield f"        {_text(key)}: {_text(value)},"
    yield "    },"
    yield ")"
    yield ""
    yield ""
    yield f"@dp.append_flow(target={_text(name + '_topic')}, name={_text(name)})"
    yield f"def {name}() -> DataFrame:"


def _records(spec: PipelineSpec) -> Iterator[str]:
    sink, columns = spec.sink, _columns(spec).types
    payload = [each for each in columns if each not in RESERVED]
    if sink["format"] == "json" and payload == [WHOLE]:
        yield '    value = F.to_json(F.array(F.col("value")))'
        yield '    value = F.substring(value, F.lit(2), F.length(value) - 2).cast("binary")'
    elif sink["format"] == "json":
        yield f'    value = F.to_json(F.struct({_list(payload)})).cast("binary")'
    else:
        yield '    value = F.col("value").cast("binary")'
    if IS_TOMBSTONE in columns and payload != [WHOLE]:
        yield f'    deleted = F.col("{IS_TOMBSTONE}")'
        yield f"    for name in {_list(payload)}:"
        yield "        deleted = deleted & F.col(name).isNull()"
        yield "    value = F.when(~deleted, value)"
    named = {"value": "value"}
    if sink.get("key"):
        named["key"] = f'F.col({_text(sink["key"][0])}).cast("string").cast("binary")'
    elif "_key" in columns:
        named["key"] = 'F.col("_key").cast("binary")'
    if _has_headers(spec) and "_headers" in columns:
        named["headers"] = 'F.col("_headers")'
    if "_timestamp" in columns:
        named["timestamp"] = 'F.col("_timestamp")'
    yield "    return rows.select("
    for name, expression in named.items():
        yield f"        {expression}.alias({_text(name)}),"
    yield "    )"


def _columns(spec: PipelineSpec) -> Columns:
    """Columns of the sink. They are open if only Spark knows them, as after a user's function."""
    begin = source_columns(spec.source)
    return reduce(lambda columns, part: after(part, columns), spec.transforms, begin)


def _has_headers(spec: PipelineSpec) -> bool:
    """Headers are read for a topic sink, unless the spec says otherwise."""
    asked = spec.source.get("headers")
    return spec.sink.type == "topic" if asked is None else bool(asked)


def _project(spec: PipelineSpec, storage: str) -> str:
    configuration = dict(spec.spark.conf)
    if spec.trigger.interval_ms:
        configuration[PREFIX + MIN_INTERVAL] = f"{spec.trigger.interval_ms} ms"
    default = Restart()
    if spec.restart != default:
        configuration[f"{PREFIX}restart.max_attempts"] = str(spec.restart.max_attempts)
        configuration[f"{PREFIX}restart.backoff"] = f"{spec.restart.backoff_ms} ms"
        configuration[f"{PREFIX}restart.backoff_max"] = f"{spec.restart.backoff_ms_max} ms"
    document = {
        "name": spec.name,
        "storage": storage,
        "libraries": [{"glob": {"include": f"{LIBRARY}/**"}}],
        **({"configuration": configuration} if configuration else {}),
    }
    return str(yaml.safe_dump(document, sort_keys=False))


def _bootstrap_of(part: Part, bootstrap: str) -> str:
    return ",".join(part.get("bootstrap") or [bootstrap])


def _client(part: Part) -> dict[str, str]:
    given: Mapping[str, str] = part.get("kafka") or {}
    return {f"kafka.{name.removeprefix('kafka.')}": value for name, value in given.items()}


def _module(part: Part) -> str:
    return str(part["function"]).partition(":")[0]


def _identifier(name: str) -> str:
    """Name of a table and of a function: a pipeline's name may have other characters."""
    found = "".join(each if each.isalnum() else "_" for each in name)
    return f"_{found}" if found[:1].isdigit() else found


def _list(names: object) -> str:
    assert isinstance(names, (list, tuple))
    return f"[{', '.join(map(_text, names))}]"


def _text(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)
