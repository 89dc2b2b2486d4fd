"""What carries out each kind of transform of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame

from barnabas.pipelines.spark.transforms import relational, single_message, stateful

TRANSFORMERS: Mapping[str, Callable[..., DataFrame]] = {
    "sql": relational.sql,
    "filter": relational.keep,
    "window": stateful.window,
    "deduplicate": stateful.deduplicate,
    "join": stateful.join,
    "python": relational.python,
    "InsertField": single_message.insert_field,
    "ReplaceField": single_message.replace_field,
    "MaskField": single_message.mask_field,
    "ValueToKey": single_message.value_to_key,
    "ExtractField": single_message.extract_field,
    "Cast": single_message.cast,
    "TimestampConverter": single_message.timestamp_converter,
    "TimestampRouter": single_message.timestamp_router,
    "RegexRouter": single_message.regex_router,
    "HoistField": single_message.hoist_field,
    "Flatten": single_message.flatten,
    "Filter": single_message.drop,
    "DropHeaders": single_message.drop_headers,
    "InsertHeader": single_message.insert_header,
}
