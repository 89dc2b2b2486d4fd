"""How a pipeline is, in Connect's form, with what Connect has no word for under `pipeline`."""

from __future__ import annotations

from typing import Any

from barnabas.pipelines.service.service import PipelineService
from barnabas.pipelines.service.supervisor import State

CONNECT_STATES = {
    State.STARTING: "UNASSIGNED",
    State.STOPPING: "RUNNING",
    State.FINISHED: "STOPPED",
}
"""Connect's word for a state that Connect does not have; all others are its own."""
_NEVER_RUN: dict[str, Any] = {
    "state": State.FAILED.value, "delivery": None, "generation": 0, "failures": 0, "restarts": 0,
    "last_error": None, "records": 0, "dead_letters": 0, "since_ms": 0, "progress": None,
}  # fmt: skip
"""Of a pipeline whose stored configuration makes no sense here."""


def connector_info(service: PipelineService, name: str) -> dict[str, Any]:
    stored = service.stored(name)
    return {
        "name": name,
        "config": dict(stored.config),
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
        "progress": None if pipeline.progress is None else pipeline.progress.to_document(),
    }
    # A pipeline is one task; a stopped connector has none, as in Connect.
    return _status(service, name, pipeline.state, about, has_task=pipeline.state is not State.STOPPED)


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
