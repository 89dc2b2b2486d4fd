"""Settings of the service for a declarative pipeline, and its spec.

The spec names the project file alone. The service reads the project for each update. So a change of the
project counts from the next update on, and a project that is missing for a while does not stop the service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from barnabas.pipelines.spec.model import Errors, Part, PipelineSpec, Restart
from barnabas.pipelines.spec.options.option import Kind, Option, duration_ms
from barnabas.pipelines.spec.options.sections import RESTART
from barnabas.pipelines.spec.options.values import convert
from barnabas.pipelines.spec.problems import InvalidSpec, Problem, meant, shown

CONNECTOR_CLASS: Final = "DeclarativePipeline"
PROJECT_FILE: Final = "project.file"
MIN_INTERVAL: Final = "update.min.interval"
MAX_INTERVAL: Final = "update.max.interval"
LETTERS: Final = "errors.deadletterqueue.topic.name"

SETTINGS: Final = (
    Option(MIN_INTERVAL, Kind.DURATION, "10 seconds", "Shortest time between the starts of two updates."),
    Option(MAX_INTERVAL, Kind.DURATION, "10 minutes", "Longest time between the starts of two updates."),
    Option(LETTERS, Kind.TEXT, None, "Topic of the project's dead letters, which are counted."),
    *(replace(row, name=f"restart.{row.name}") for row in RESTART),
)
_BY_NAME: Final = {row.name: row for row in SETTINGS}


def setting_complaint(name: str, value: Any) -> str | None:
    row = _BY_NAME.get(name)
    if row is None:
        return f"there is no such setting of the service; {meant(name, _BY_NAME)}"
    _, fits = convert(row, value)
    return None if fits else f"found {shown(value)}; expected {row.expected}"


def declarative_config(name: str, file: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Configuration of a declarative pipeline, as the service stores it."""
    return {"connector.class": CONNECTOR_CLASS, "name": name, PROJECT_FILE: str(file), **settings}


def declarative_spec(name: str, config: Mapping[str, Any]) -> PipelineSpec:
    """Spec of a configuration; raises InvalidSpec with all problems."""
    problems = []
    for key, value in config.items():
        if key not in ("name", "connector.class", PROJECT_FILE) and (found := setting_complaint(key, value)):
            problems.append(Problem((key,), "config", None, found))
    file = config.get(PROJECT_FILE)
    if not isinstance(file, str) or not Path(file).is_absolute():
        complaint = f"found {shown(file)}; expected the path of a spark-pipeline.yml on the service's machine"
        problems.append(Problem((PROJECT_FILE,), "config", None, complaint))
    if problems:
        raise InvalidSpec(problems)
    chosen = {row.name: convert(row, config.get(row.name, row.default))[0] for row in SETTINGS}
    low, high = duration_ms(chosen[MIN_INTERVAL]), duration_ms(chosen[MAX_INTERVAL])
    if low > high:
        complaint = f"is longer than {MAX_INTERVAL}"
        raise InvalidSpec([Problem((MIN_INTERVAL,), "config", None, complaint)])
    return PipelineSpec(
        name,
        source=Part("project", {"file": file, "min_interval_ms": low, "max_interval_ms": high}),
        sink=Part("tables", {}),
        errors=Errors(dead_letter_topic=chosen[LETTERS] or None),
        restart=Restart(
            chosen["restart.max_attempts"],
            duration_ms(chosen["restart.backoff"]),
            duration_ms(chosen["restart.backoff_max"]),
        ),
    )
