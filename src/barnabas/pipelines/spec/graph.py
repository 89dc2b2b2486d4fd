"""Graph of a pipeline for people: its stages from source to sink, and the edges between them.

Every text is free of passwords. Secrets are references already; addresses may have a password from an earlier
release.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from barnabas.pipelines.spec.model import Part, PipelineSpec
from barnabas.pipelines.spec.options.catalogue import CATALOGUE
from barnabas.pipelines.spec.options.option import Value
from barnabas.pipelines.spec.options.value_parsers import hide_passwords

StageKind = Literal["source", "transform", "sink", "dead letters"]
TEXT_MAX: Final = 400
_NAMES: Final = ("topics", "pattern", "assign", "topic", "path", "table", "url", "prefix")
"""Options that say where a source reads or a sink writes. The first one that is set names the stage."""

_OF_PROJECTS: Final = ("project", "tables")
"""Ends of a declarative pipeline, which Spark knows and a spec cannot name."""


@dataclass(frozen=True, slots=True)
class Stage:
    kind: StageKind
    type: str
    title: str
    """Main option: the topics, the query, the path."""
    settings: dict[str, str]
    """Options that differ from their defaults."""
    topics: tuple[str, ...] = ()
    is_foreign: bool = False
    """Whether its topics are reached with a bootstrap address or client settings of its own."""


@dataclass(frozen=True, slots=True)
class Graph:
    stages: tuple[Stage, ...]
    edges: tuple[tuple[int, int], ...]
    """Indexes of stages: from, to."""
    group_id: str | None
    """Consumer group that shows the progress; None for a source that is not a topic."""

    def to_document(self) -> dict[str, Any]:
        return asdict(self)


def graph_of(spec: PipelineSpec) -> Graph:
    """Stages in the order of the data. The other source of a join stands before the join."""
    stages = [_stage("source", spec.source)]
    edges: list[tuple[int, int]] = []
    last = 0
    for part in spec.transforms:
        joined = part.get("source")
        if isinstance(joined, Part):
            stages.append(_stage("source", joined))
            edges.append((len(stages) - 1, len(stages)))
        stages.append(_stage("transform", part))
        edges.append((last, len(stages) - 1))
        last = len(stages) - 1
    stages.append(_stage("sink", spec.sink))
    edges.append((last, len(stages) - 1))
    if spec.errors.dead_letter_topic:
        joined_sources = {edge[0] for edge in edges if stages[edge[0]].kind == "source" and edge[0]}
        edges += [(at, len(stages)) for at in range(len(stages)) if at not in joined_sources]
        stages.append(_letters(spec))
    return Graph(tuple(stages), tuple(edges), spec.group_id if spec.source.type == "topic" else None)


def _letters(spec: PipelineSpec) -> Stage:
    topic = str(spec.errors.dead_letter_topic)
    settings: dict[str, str] = {}
    if spec.errors.max_error_ratio < 1:
        settings["max_error_ratio"] = f"{spec.errors.max_error_ratio:g}"
    is_foreign = spec.sink.type == "topic" and _is_foreign(spec.sink)
    return Stage("dead letters", "topic", topic, settings, (topic,), is_foreign)


def _stage(kind: StageKind, part: Part) -> Stage:
    if part.type in _OF_PROJECTS:
        title = str(part.get("file", ""))
        return Stage(kind, part.type, title or part.type, {})
    plugin = CATALOGUE[kind][part.type]
    settings: dict[str, str] = {}
    for name, value in part.options.items():
        option = plugin.option(name)
        if value is None or (option is not None and value == option.default):
            continue
        settings[name] = "(set)" if option is not None and option.secret else _text(value)
    title = _title(part) if kind != "transform" else settings.get(plugin.primary or "", "")
    return Stage(kind, part.type, title or part.type, settings, _topics(part), _is_foreign(part))


def _title(part: Part) -> str:
    return next((_text(part.options[name]) for name in _NAMES if part.options.get(name)), "")


def _topics(part: Part) -> tuple[str, ...]:
    if part.type != "topic":
        return ()
    found = part.get("topics") or part.get("topic") or ()
    return (found,) if isinstance(found, str) else tuple(map(str, found))


def _is_foreign(part: Part) -> bool:
    return bool(part.get("bootstrap") or part.get("kafka"))


def _text(value: Value) -> str:
    """Value of an option on one line."""
    if isinstance(value, Part):
        return _title(value) or value.type
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        found = ", ".join(f"{name}={each}" for name, each in value.items())
    elif isinstance(value, list | tuple):
        found = ", ".join(map(str, value))
    else:
        found = str(value)
    shown = hide_passwords(" ".join(found.split()))
    return shown if len(shown) <= TEXT_MAX else f"{shown[: TEXT_MAX - 1]}…"
