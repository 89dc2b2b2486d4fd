"""`/connector-plugins`: the catalogue's rows in Connect's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.pipelines.service.errors import ServiceError
from barnabas.pipelines.spec.connect.config import WHOLE_SPEC, connector_types, spec_of_config
from barnabas.pipelines.spec.declarative.settings import CONNECTOR_CLASS, PROJECT_FILE, SETTINGS
from barnabas.pipelines.spec.options.catalogue import CATALOGUE
from barnabas.pipelines.spec.options.option import REQUIRED, Kind, Option
from barnabas.pipelines.spec.options.sections import ERRORS, TOP
from barnabas.pipelines.spec.problems import InvalidSpec, meant

_WHOLES = (WHOLE_SPEC, CONNECTOR_CLASS)
"""Classes of pipelines that are not described by one source and one sink."""
_PROJECT = Option(PROJECT_FILE, Kind.TEXT, REQUIRED, "Path of a spark-pipeline.yml on the service's machine.")
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
    wholes = ({"class": name, "type": "sink", "version": version} for name in _WHOLES)
    return [*ends, *wholes]


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
            path = (*problem.path, problem.missing) if problem.missing else problem.path
            errors.setdefault(_option_of(path, config), []).append(problem.message)
    names = {row.name for row in rows}
    extra = [each for each in errors if each not in names]
    configs = [
        {
            "definition": _key(row, at, _short(name)),
            "value": _value(row, _given(row, config), errors.get(row.name, [])),
        }
        for at, row in enumerate(rows)
    ]
    for each in extra:
        row = Option(each, Kind.TEXT, None, "", choices=_choices(each))
        definition = _key(row, len(configs), _short(name))
        configs.append({"definition": definition, "value": _value(row, config.get(each), errors[each])})
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
    if short == CONNECTOR_CLASS:
        return (_PROJECT, *SETTINGS)
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


_CONNECT_NAMES = {
    ("errors", "dead_letter_topic"): "errors.deadletterqueue.topic.name",
    ("errors", "max_error_ratio"): "errors.max.error.ratio",
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "connector.class": (*connector_types(), *_WHOLES),
    **{row.name: row.choices for row in TOP},
    **{alias: row.choices for row in ERRORS for alias in row.aliases},
}


def _choices(key: str) -> tuple[str, ...]:
    """Values that a key may have which is no option of the connector, such as `errors.tolerance`."""
    if key.startswith("transforms.") and key.endswith(".type"):
        return tuple(CATALOGUE["transform"])
    return _CHOICES.get(key, ())


def _option_of(path: tuple[str | int, ...], config: Mapping[str, Any]) -> str:
    """Key of the configuration for a path of the spec: `source.topics` is `topics`, and `transforms.0.fields`
    is `transforms.mask.fields` if the first transform is called `mask`."""
    if path in _CONNECT_NAMES:
        return _CONNECT_NAMES[path]
    words = [str(each) for each in path]
    if words[:1] in (["source"], ["sink"]):
        words = words[1:]
    elif words[:1] == ["transforms"] and len(words) > 1 and words[1].isdecimal():
        names = [name.strip() for name in str(config.get("transforms", "")).split(",") if name.strip()]
        at = int(words[1])
        words[1] = names[at] if at < len(names) else words[1]
        if len(words) == 2:
            words.append("type")
    if "pipeline.spec" in config and words != ["pipeline.spec"]:
        return "pipeline.spec"
    return ".".join(words) or "connector.class"


def _given(row: Option, config: Mapping[str, Any]) -> Any:
    """Value of an option, under its own name or one of Connect's."""
    names = (row.name, row.name.replace("_", "."), *row.aliases)
    return next((config[name] for name in names if name in config), None)


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


def _value(row: Option, value: Any, errors: list[str]) -> dict[str, Any]:
    recommended = ("true", "false") if row.kind is Kind.BOOLEAN else row.choices
    return {
        "name": row.name,
        "value": value,
        "recommended_values": list(recommended),
        "errors": errors,
        "visible": True,
    }
