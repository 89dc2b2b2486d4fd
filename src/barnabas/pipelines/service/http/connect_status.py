"""Status of a pipeline in Connect's form, with additional fields under `pipeline`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from barnabas.pipelines.service.service import PipelineService
from barnabas.pipelines.service.supervisor import State, Supervised
from barnabas.pipelines.spec.options.value_parsers import hide_passwords

CONNECT_STATES = {
    State.STARTING: "UNASSIGNED",
    State.STOPPING: "RUNNING",
    State.FINISHED: "STOPPED",
}
"""Connect's name for each state that Connect lacks; all others have the same name."""
_NEVER_RUN: dict[str, Any] = {
    "state": State.FAILED.value, "delivery": None, "generation": 0, "failures": 0, "restarts": 0,
    "last_error": None, "records": 0, "dead_letters": 0, "since_ms": 0, "lag": None,
    "progress": None, "records_per_second": None, "errors": [],
}  # fmt: skip
"""Status of a pipeline whose stored configuration is invalid in this release."""


def shown_config(service: PipelineService, name: str) -> dict[str, str]:
    """Configuration without the passwords that an earlier release allowed inside addresses."""
    return {key: hide_passwords(value) for key, value in service.stored(name).config.items()}


def connector_info(service: PipelineService, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "config": shown_config(service, name),
        "tasks": [{"connector": name, "task": 0}],
        "type": service.connector_type(name),
    }


def connector_status(service: PipelineService, name: str) -> dict[str, Any]:
    problem = service.problem(name)
    if problem is not None:
        about = {**_NEVER_RUN, "generation": service.stored(name).generation, "last_error": problem}
        return _status(service, name, State.FAILED, about, has_task=False)
    pipeline = service.pipeline(name)
    about = {
        "state": pipeline.state.value,
        "delivery": pipeline.spec.guarantee.value,
        "generation": pipeline.generation,
        "failures": pipeline.failures,
        "restarts": pipeline.restarts,
        "last_error": pipeline.last_error,
        "records": pipeline.records_total,
        "dead_letters": pipeline.errors_total,
        "since_ms": pipeline.since_ms,
        "lag": pipeline.lag,
        "progress": _progress(pipeline),
        "records_per_second": _rate(service, pipeline),
        "errors": [asdict(each) for each in pipeline.past_errors.newest()],
    }
    # A pipeline is one task; a stopped connector has none, as in Connect.
    return _status(service, name, pipeline.state, about, has_task=pipeline.state is not State.STOPPED)


def _progress(pipeline: Supervised) -> dict[str, Any] | None:
    """Last report, with the current lag."""
    if pipeline.progress is None:
        return None
    return {**pipeline.progress.to_document(), "lag": pipeline.lag}


def _rate(service: PipelineService, pipeline: Supervised) -> float | None:
    """Over the last minute; None while the pipeline does not run."""
    if pipeline.state is not State.RUNNING:
        return None
    return round(pipeline.rate.per_second(service.now_ms(), pipeline.since_ms), 3)


def _status(
    service: PipelineService, name: str, state: State, about: dict[str, Any], *, has_task: bool
) -> dict[str, Any]:
    row = {"state": CONNECT_STATES.get(state, state.value), "worker_id": service.worker_id}
    if state in (State.FAILED, State.RESTARTING) and about["last_error"]:
        row["trace"] = about["last_error"]
    return {
        "name": name,
        "connector": row,
        "tasks": [{"id": 0, **row}] if has_task else [],
        "type": service.connector_type(name),
        "pipeline": about,
    }
