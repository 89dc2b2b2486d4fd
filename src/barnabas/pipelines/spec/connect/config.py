"""Kafka Connect configurations as pipeline specs, so that existing tools keep working.

A configuration is a flat map of text. `connector.class` names one of our sources or sinks, by its short name
or by that of an equivalent Connect plugin (`connect.jdbc`). The other end is a topic, as in Connect: a sink
connector reads `topics`, a source connector writes `topic`. `connector.class=Pipeline` instead takes a whole
spec as YAML under `pipeline.spec`, and `connector.class=DeclarativePipeline` the path of a project under
`project.file`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from barnabas.pipelines.spec.connect.jdbc import translated
from barnabas.pipelines.spec.declarative.settings import CONNECTOR_CLASS, declarative_spec
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.pipelines.spec.options.catalogue import CATALOGUE
from barnabas.pipelines.spec.options.option import Kind, Plugin, Value
from barnabas.pipelines.spec.options.reserved_words import TOMBSTONE
from barnabas.pipelines.spec.problems import InvalidSpec, Problem, meant
from barnabas.pipelines.spec.validation import load
from barnabas.pipelines.spec.yaml_source import Located, UnreadableSpec, read_yaml

WHOLE_SPEC = "Pipeline"
SCHEMAS_ENABLE = "value.converter.schemas.enable"

_ELSEWHERE = {
    "FileStreamSource": "FilesSource takes up files that appear in a directory (path, format, schema)",
    "FileStreamSink": "FilesSink writes a directory of files (path, format)",
    "S3Sink": "FilesSink writes files: path s3a://<bucket>/<directory>, format parquet or json",
    "S3Source": "FilesSource reads files: path s3a://<bucket>/<directory>, format, schema",
    "HdfsSink": "FilesSink writes files: path hdfs://<host>/<directory>, format parquet or json",
}
"""Well-known connectors that one of ours can replace without being the same; the user decides."""
_CONVERTERS = {
    "JsonConverter": "json",
    "StringConverter": "text",
    "ByteArrayConverter": "raw",
    "AvroConverter": "avro",
    "ProtobufConverter": "protobuf",
}
_IGNORED = re.compile(
    r"name|connector\.class|tasks\.max|transforms(\..*)?|predicates(\..*)?|errors\..*|(key|value|header)\.converter(\..*)?"
    r"|config\.action\.reload|producer\.override\..*|consumer\.override\..*|topic\.creation\..*|exactly\.once\.support"
    r"|delivery|engine|trigger|spark\..*|restart\..*|pipeline\.spec"
)


def connector_types() -> dict[str, Plugin]:
    """Our connector classes by name: every source and sink except the topic source."""
    ends = (*CATALOGUE["source"].values(), *CATALOGUE["sink"].values())
    return {plugin.connect_class: plugin for plugin in ends if plugin.connect_class != "TopicSource"}


def spec_of_config(name: str, config: Mapping[str, Any]) -> PipelineSpec:
    """Spec of a configuration; raises InvalidSpec with all problems."""
    asked = config.get("connector.class")
    if asked is None:
        names = ", ".join(connector_types())
        raise _invalid(
            "connector.class", f"is missing; expected {WHOLE_SPEC}, {CONNECTOR_CLASS} or one of {names}"
        )
    short = str(asked).rsplit(".", 1)[-1].removesuffix("Connector")
    if short == WHOLE_SPEC:
        return load(_whole(name, config))
    if short == CONNECTOR_CLASS:
        return declarative_spec(name, config)
    plugin = connector_types().get(short)
    if plugin is None:
        raise _invalid("connector.class", f"there is no connector {asked!r} here; {_instead(short)}")
    reading = _Reading(config)
    document = reading.document(name, plugin)
    try:
        spec = load(Located(document, "config"))
    except InvalidSpec as error:
        raise InvalidSpec([*reading.problems, *error.problems]) from None
    if reading.problems:
        raise InvalidSpec(reading.problems)
    return spec


def _instead(short: str) -> str:
    if short in _ELSEWHERE:
        return f"{_ELSEWHERE[short]}, and is not the same"
    return meant(short, [*connector_types(), WHOLE_SPEC, CONNECTOR_CLASS])


def _whole(name: str, config: Mapping[str, Any]) -> Located:
    text = config.get("pipeline.spec")
    if not isinstance(text, str):
        raise _invalid("pipeline.spec", "is missing; expected a spec as YAML")
    try:
        located = read_yaml(text, "pipeline.spec")
    except UnreadableSpec as error:
        raise _invalid("pipeline.spec", str(error)) from None
    if isinstance(located.document, dict):
        located.document.setdefault("name", name)
        if located.document["name"] != name:
            raise _invalid("pipeline.spec", f"has the name {located.document['name']!r}, not {name!r}")
    return located


class _Reading:
    """Translation of one configuration to a document; collects the problems."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self.problems: list[Problem] = []

    def complain(self, key: str, message: str) -> None:
        self.problems.append(Problem((key,), "config", None, message))

    def document(self, name: str, plugin: Plugin) -> dict[str, Value]:
        topic_source, topic_sink = CATALOGUE["source"]["topic"], CATALOGUE["sink"]["topic"]
        if plugin.name == "jdbc":
            self.config = translated(self.config, plugin.role, self.complain)
        config = self.config
        if plugin.role == "source":
            source, sink, topic_end = plugin, topic_sink, "sink"
        else:
            source, sink, topic_end = topic_source, plugin, "source"
        document: dict[str, Value] = {
            "name": name,
            "source": {"type": source.name, **_options(config, source)},
            "sink": {"type": sink.name, **_options(config, sink)},
            "transforms": self._transforms(),
            "errors": _errors(config),
        }
        if plugin is topic_sink:
            document["sink"].pop("topic", None)
            if "topic" in config:
                document["sink"]["topic"] = config["topic"]
            document["source"].pop("topics", None)
            document["source"]["topics"] = config.get("topics") or None
        document[topic_end] |= self._converters(topic_end)
        for section in ("delivery", "engine", "trigger"):
            if section in config:
                document[section] = config[section]
        document["spark"] = _spark(config)
        restart = {
            key.removeprefix("restart."): value for key, value in config.items() if key.startswith("restart.")
        }
        self._unknown(source, sink)
        return document | ({"restart": restart} if restart else {})

    def _converters(self, topic_end: str) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for key, option in (("value.converter", "format"), ("key.converter", "key_format")):
            given = self.config.get(key)
            if given is None:
                continue
            short = str(given).rsplit(".", 1)[-1]
            kind = _CONVERTERS.get(short)
            if kind is None:
                self.complain(key, f"there is no converter {given!r}; {meant(short, _CONVERTERS)}")
            elif option == "format" or kind in ("text", "raw"):
                found[option] = kind
        if "value.format" in self.config:
            found["format"] = self.config["value.format"]
        found |= self._envelope(topic_end, str(found.get("format", "json")))
        if self.config.get("value.converter.schema.registry.url"):
            found["schema_registry"] = self.config["value.converter.schema.registry.url"]
        return found

    def _envelope(self, topic_end: str, kind: str) -> dict[str, Value]:
        """Envelope option. JsonConverter adds one unless `schemas.enable` is false; our sink never does."""
        given = str(self.config.get(SCHEMAS_ENABLE, "")).lower()
        if topic_end == "sink" and given == "true" and kind == "json":
            self.complain(
                SCHEMAS_ENABLE,
                "the sink writes no envelope of schema and payload; expected false",
            )
        has_converter = "JsonConverter" in str(self.config.get("value.converter", ""))
        if topic_end != "source" or kind != "json" or not (given or has_converter):
            return {}
        return {"envelope": {"true": "connect", "false": "none"}.get(given, "auto")}

    def _transforms(self) -> list[Value]:
        names = [name.strip() for name in str(self.config.get("transforms", "")).split(",") if name.strip()]
        return [part for name in names if (part := self._transform(name)) is not None]

    def _transform(self, name: str) -> dict[str, Value] | None:
        prefix = f"transforms.{name}."
        given = {
            key.removeprefix(prefix): each for key, each in self.config.items() if key.startswith(prefix)
        }
        kind, _, target = str(given.pop("type", "")).partition("$")
        short = kind.rsplit(".", 1)[-1]
        if short not in CATALOGUE["transform"]:
            self.complain(
                f"{prefix}type", f"there is no transform {kind!r}; {meant(short, CATALOGUE['transform'])}"
            )
            return None
        part: dict[str, Value] = {"type": short, **given}
        if target:
            part["target"] = target.lower()
        if "predicate" in part:
            part["predicate"] = self._predicate(str(part["predicate"]))
        return part

    def _predicate(self, name: str) -> str | None:
        """Connect's predicate as an SQL condition."""
        kind = str(self.config.get(f"predicates.{name}.type", "")).rsplit(".", 1)[-1]
        if kind == "TopicNameMatches":
            pattern = str(self.config.get(f"predicates.{name}.pattern", "")).replace("'", "''")
            return f"_topic RLIKE r'^(?:{pattern})$'"
        if kind == "HasHeaderKey":
            header = str(self.config.get(f"predicates.{name}.name", "")).replace("'", "''")
            return f"exists(_headers, h -> h.key = '{header}')"
        if kind == "RecordIsTombstone":
            return TOMBSTONE
        known = ("TopicNameMatches", "HasHeaderKey", "RecordIsTombstone")
        self.complain(f"predicates.{name}.type", f"there is no predicate {kind!r}; {meant(kind, known)}")
        return None

    def _unknown(self, *plugins: Plugin) -> None:
        known = {"topic", "topics", "topics.regex", "value.format", "key.format"}
        prefixes: list[str] = []
        for row in (row for plugin in plugins for row in plugin.options):
            known |= {row.name, row.name.replace("_", "."), *row.aliases}
            prefixes += [row.name.replace("_", ".") + "."] if row.kind is Kind.MAP else []
        for key in self.config:
            if key not in known and not _IGNORED.fullmatch(key) and not key.startswith(tuple(prefixes)):
                ends = f"{plugins[0].name} to {plugins[1].name}"
                self.complain(key, f"{ends} has no option {key!r}; {meant(key, sorted(known))}")


def _options(config: Mapping[str, Any], plugin: Plugin) -> dict[str, Value]:
    """Options of one end, under our names, our names with dots, or Connect's names."""
    found: dict[str, Value] = {}
    for row in plugin.options:
        if row.name == "format" and plugin.name == "topic":
            continue
        for key in (row.name, row.name.replace("_", "."), *row.aliases):
            if key in config and config[key] != "":
                found[row.name] = config[key]
        if row.kind is Kind.MAP:
            prefix = row.name.replace("_", ".") + "."
            nested = {
                key.removeprefix(prefix): each for key, each in config.items() if key.startswith(prefix)
            }
            if nested and row.name != "kafka":
                found[row.name] = nested
    return found


def _errors(config: Mapping[str, Any]) -> dict[str, Value]:
    names = {
        "errors.tolerance": "tolerance",
        "errors.deadletterqueue.topic.name": "dead_letter_topic",
        "errors.max.error.ratio": "max_error_ratio",
    }
    return {ours: config[theirs] for theirs, ours in names.items() if config.get(theirs)}


def _spark(config: Mapping[str, Any]) -> dict[str, Value]:
    conf = {key: each for key, each in config.items() if key.startswith("spark.") and key != "spark.master"}
    section: dict[str, Value] = {"conf": conf} if conf else {}
    if "spark.master" in config:
        section["master"] = config["spark.master"]
    return section


def _invalid(key: str, message: str) -> InvalidSpec:
    return InvalidSpec([Problem((key,), "config", None, message)])
