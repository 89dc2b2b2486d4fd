"""`/connector-plugins`: the catalogue's rows in Connect's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.pipelines.service.errors import ServiceError
from barnabas.pipelines.spec.connect.config import WHOLE_SPEC, connector_types, spec_of_config
from barnabas.pipelines.spec.options.catalogue import CATALOGUE
from barnabas.pipelines.spec.options.option import Kind, Option
from barnabas.pipelines.spec.problems import InvalidSpec, meant

_TYPES = {
    Kind.INTEGER: "LONG",
    Kind.NUMBER: "DOUBLE",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.LIST: "LIST",
}


def plugin_list(version: str) -> list[dict[str, str]]:
    ends = [
        {"class": name, "type": plugin.role, "version": version} for name, plugin in connector_types().items()
    ]
    return [*ends, {"class": WHOLE_SPEC, "type": "sink", "version": version}]


def config_keys(name: str) -> list[dict[str, Any]]:
    """Options of a connector class or a transform."""
    return [_key(row, at, _short(name)) for at, row in enumerate(_rows(name))]


def validate_config(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Connect's validation result: every option with its value and errors."""
    asked = config.get("connector.class", name)
    if _short(str(asked)) != _short(name):
        raise ServiceError(400, f"Included connector type {asked} does not match request type {name}")
    rows = _rows(name)
    errors: dict[str, list[str]] = {}
    try:
        spec_of_config(str(config.get("name", "unnamed")), {**config, "connector.class": asked})
    except InvalidSpec as error:
        for problem in error.problems:
            errors.setdefault(_option_of(problem.path), []).append(problem.message)
    names = {row.name for row in rows}
    extra = [each for each in errors if each not in names]
    configs = [
        {
            "definition": _key(row, at, _short(name)),
            "value": _value(row.name, config.get(row.name), errors.get(row.name, [])),
        }
        for at, row in enumerate(rows)
    ]
    for each in extra:
        definition = _key(Option(each, Kind.TEXT, None, ""), len(configs), _short(name))
        configs.append({"definition": definition, "value": _value(each, config.get(each), errors[each])})
    return {
        "name": name,
        "error_count": sum(map(len, errors.values())),
        "groups": ["Common", _short(name)],
        "configs": configs,
    }


def _rows(name: str) -> tuple[Option, ...]:
    short = _short(name)
    if short == WHOLE_SPEC:
        return (Option("pipeline.spec", Kind.TEXT, None, "A whole spec, as YAML."),)
    plugin = connector_types().get(short.removesuffix("Connector"))
    if plugin is None:
        plugin = CATALOGUE["transform"].get(short)
    if plugin is None:
        raise ServiceError(
            404,
            f"Unknown plugin {name}: {meant(short, connector_types())};"
            f" available: {', '.join(connector_types())}",
        )
    if plugin.role == "transform":
        return plugin.options
    other = CATALOGUE["sink" if plugin.role == "source" else "source"]["topic"]
    own = {row.name for row in plugin.options}
    return (*plugin.options, *(row for row in other.options if row.name not in own))


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _option_of(path: tuple[str | int, ...]) -> str:
    """Option of the configuration for a path of the spec: `source.topics` is `topics`."""
    words = [str(each) for each in path if each not in ("source", "sink")]
    return ".".join(words) or "connector.class"


def _key(row: Option, order: int, group: str) -> dict[str, Any]:
    return {
        "name": row.name,
        "type": "PASSWORD" if row.secret else _TYPES.get(row.kind, "STRING"),
        "required": row.is_required,
        "default_value": None if row.is_required or row.default is None else str(row.default),
        "importance": "HIGH" if row.is_required else "MEDIUM",
        "documentation": row.doc,
        "group": group,
        "width": "MEDIUM",
        "display_name": row.name,
        "dependents": [],
        "order": order,
    }


def _value(name: str, value: Any, errors: list[str]) -> dict[str, Any]:
    return {"name": name, "value": value, "recommended_values": [], "errors": errors, "visible": True}
