"""How a pipeline is, in Connect's form, with what Connect has no word for under `pipeline`."""

from __future__ import annotations

from typing import Any

from barnabas.pipelines.service.service import PipelineService
from barnabas.pipelines.service.store import Stored
from barnabas.pipelines.service.supervisor import State

CONNECT_STATES = {
    State.STARTING: "UNASSIGNED",
    State.STOPPING: "RUNNING",
    State.FINISHED: "STOPPED",
}
"""Connect's word for a state that Connect does not have; all others are its own."""


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
        return _status_of_invalid(service, service.stored(name), problem)
    pipeline = service.pipeline(name)
    state = CONNECT_STATES.get(pipeline.state, pipeline.state.value)
    row: dict[str, Any] = {"state": state, "worker_id": service.worker_id}
    if pipeline.state in (State.FAILED, State.RESTARTING) and pipeline.last_error:
        row["trace"] = pipeline.last_error
    # A pipeline is one task; a stopped connector has none, as in Connect.
    tasks = [] if pipeline.state is State.STOPPED else [{"id": 0, **row}]
    return {
        "name": name,
        "connector": row,
        "tasks": tasks,
        "type": service.connector_type(name),
        "pipeline": {
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
        },
    }


def _status_of_invalid(service: PipelineService, stored: Stored, problem: str) -> dict[str, Any]:
    failed = State.FAILED.value
    return {
        "name": stored.name,
        "connector": {"state": failed, "worker_id": service.worker_id, "trace": problem},
        "tasks": [],
        "type": service.connector_type(stored.name),
        "pipeline": {
            "state": failed,
            "delivery": None,
            "generation": stored.generation,
            "failures": 0,
            "restarts": 0,
            "last_error": problem,
            "records": 0,
            "dead_letters": 0,
            "since_ms": 0,
            "progress": None,
        },
    }
