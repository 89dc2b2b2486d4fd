"""JSON Schema of a spec, rendered from the catalogue's rows, for editors and other programs.

`python -m barnabas.pipelines.spec.schema` prints it. `docs/pipeline.schema.json` is that output, and a test
compares the two.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.pipelines.spec.options.catalogue import CATALOGUE
from barnabas.pipelines.spec.options.option import DURATION, Kind, Option, Plugin
from barnabas.pipelines.spec.options.sections import ERRORS, RESTART, SPARK, TOP

_DURATION_PATTERN = "^" + DURATION.pattern.replace("(?:", "(") + "$"
_REFERENCE = {"type": "string", "pattern": r"\$\{(env|file):[^}]+\}"}

_TYPES: Mapping[Kind, dict[str, Any]] = {
    Kind.TEXT: {"type": ["string", "number"]},
    Kind.SCHEMA: {"type": "string"},
    Kind.INTEGER: {"type": "integer"},
    Kind.NUMBER: {"type": "number"},
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.LIST: {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
    Kind.MAP: {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
    Kind.DURATION: {"type": "string", "pattern": _DURATION_PATTERN},
    Kind.PART: {"$ref": "#/$defs/source"},
}


def pipeline_schema() -> dict[str, Any]:
    top = {row.name: _option(row) for row in TOP if row.kind is not Kind.SECTION}
    properties = {
        "name": top["name"],
        "source": {"$ref": "#/$defs/source"},
        "transforms": {"type": "array", "items": {"$ref": "#/$defs/transform"}},
        "sink": {"$ref": "#/$defs/sink"},
        "errors": _section(ERRORS),
        "trigger": {"anyOf": [{"enum": ["available_now", "once"]}, _TYPES[Kind.DURATION]]},
        "delivery": top["delivery"],
        "engine": top["engine"],
        "restart": _section(RESTART),
        "spark": _section(SPARK),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A Barnabas pipeline",
        "type": "object",
        "required": [row.name for row in TOP if row.is_required],
        "additionalProperties": False,
        "properties": properties,
        "$defs": {
            "source": _one_of("source"),
            "sink": _one_of("sink"),
            "transform": {"anyOf": [_one_of("transform"), _shorthand()]},
        },
    }


def _section(rows: Iterable[Option]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {row.name: _option(row) for row in rows},
    }


def _one_of(role: str) -> dict[str, Any]:
    return {"oneOf": [_plugin(plugin) for plugin in CATALOGUE[role].values()]}


def _plugin(plugin: Plugin) -> dict[str, Any]:
    options = {row.name: _option(row) for row in plugin.options}
    required = ["type", *(row.name for row in plugin.options if row.is_required)]
    return {
        "type": "object",
        "description": plugin.doc,
        "required": required,
        "additionalProperties": False,
        "properties": {"type": {"const": plugin.name}, **options},
    }


def _shorthand() -> dict[str, Any]:
    """`- sql: SELECT …`: one key, the type of the transform."""
    names = sorted(CATALOGUE["transform"])
    return {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": {name: {} for name in names},
    }


def _option(row: Option) -> dict[str, Any]:
    base: dict[str, Any] = {"enum": list(row.choices)} if row.kind is Kind.CHOICE else dict(_TYPES[row.kind])
    if row.at_least is not None:
        base["minimum"] = row.at_least
    if row.at_most is not None:
        base["maximum"] = row.at_most
    if row.kind in (Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN):
        base = {"anyOf": [base, _REFERENCE]}
    base["description"] = row.doc
    if row.default is not None and not row.is_required:
        base["default"] = row.default
    return base


def render() -> str:
    return json.dumps(pipeline_schema(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
