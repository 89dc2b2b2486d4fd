"""Keeps pipelines as their users want them, and says honestly how they are.

Each pipeline is a small state machine between a target (running, paused, stopped) and a driver
that starts and stops queries. A pipeline that fails is started again after a pause that doubles;
after `max_attempts` failures with no micro-batch between them it stays FAILED until someone
restarts it. Nothing here does I/O: drivers, time and timers are handed in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from barnabas.core.clock import Clock
from barnabas.core.scheduler import Cancellable, Timers
from barnabas.core.transitions import Transitions
from barnabas.pipelines.progress import Progress
from barnabas.pipelines.service.store import Target
from barnabas.pipelines.spec.model import PipelineSpec, Restart

log = logging.getLogger(__name__)


class State(Enum):
    UNASSIGNED = "UNASSIGNED"
    """Not started yet, or left to another service."""
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    RESTARTING = "RESTARTING"
    """Failed, and waiting for its next attempt."""
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FINISHED = "FINISHED"
    """Came to the end of what there was, as its trigger asked."""
    FAILED = "FAILED"


_AT_REST = frozenset(
    {State.UNASSIGNED, State.RESTARTING, State.PAUSED, State.STOPPED, State.FINISHED, State.FAILED}
)
_TROUBLED = frozenset({State.RESTARTING, State.FAILED})
_AT_WORK = frozenset({State.STARTING, State.RUNNING, State.STOPPING})

TRANSITIONS = Transitions(
    {
        State.UNASSIGNED: _AT_REST | {State.STOPPING},
        State.STARTING: _AT_REST | {State.STOPPING},
        State.RUNNING: frozenset({State.STARTING}),
        State.STOPPING: frozenset({State.STARTING, State.RUNNING}),
        State.RESTARTING: _AT_WORK,
        State.PAUSED: _AT_REST | {State.STOPPING},
        State.STOPPED: _AT_REST | {State.STOPPING},
        State.FINISHED: frozenset({State.STARTING, State.RUNNING}),
        State.FAILED: _AT_WORK | _AT_REST,
    }
)

_RESTING = {Target.PAUSED: State.PAUSED, Target.STOPPED: State.STOPPED}


class Observer(Protocol):
    """Whoever starts a pipeline is told how it fares."""

    def on_running(self, name: str, attempt: int) -> None: ...
    def on_progress(self, name: str, attempt: int, progress: Progress) -> None: ...
    def on_ended(self, name: str, attempt: int, error: str | None, *, is_final: bool = False) -> None: ...


class Drivers(Protocol):
    """Starts and stops queries somewhere."""

    def start(self, spec: PipelineSpec, generation: int, attempt: int, observer: Observer) -> None: ...
    def stop(self, name: str) -> None: ...


OnGone = Callable[[PipelineSpec, int], None]
"""Told of a pipeline that was removed, and of its generation, when it runs no more."""


@dataclass(slots=True)
class Supervised:
    spec: PipelineSpec
    target: Target
    generation: int
    state: State = State.UNASSIGNED
    attempt: int = 0
    """Numbers the starts, so that news of an earlier one is not taken for news of this one."""
    failures: int = 0
    restarts: int = 0
    last_error: str | None = None
    progress: Progress | None = None
    records_total: int = 0
    errors_total: int = 0
    since_ms: int = 0
    removed: OnGone | None = None
    """Of one that was removed, and still stops: who wants to hear of its end."""
    retry: Cancellable | None = field(default=None, repr=False)


class Supervisor:
    def __init__(self, drivers: Drivers, timers: Timers, clock: Clock) -> None:
        self.pipelines: dict[str, Supervised] = {}
        self._drivers = drivers
        self._timers = timers
        self._clock = clock
        self._released: str | None = None
        """Why nothing is run here any more."""

    def release(self, reason: str) -> None:
        """Stop everything, whatever its target, and start nothing again: others take care of it."""
        self._released = reason
        for pipeline in self.pipelines.values():
            pipeline.last_error = reason
            if pipeline.state in (State.STARTING, State.RUNNING):
                self._stop(pipeline)
            elif pipeline.state is not State.STOPPING:
                self._cancel_retry(pipeline)
                self._enter(pipeline, State.UNASSIGNED)

    def regain(self) -> None:
        """Take everything up again that was released."""
        self._released = None
        for pipeline in self.pipelines.values():
            pipeline.last_error = None
            self._act(pipeline)

    def put(self, spec: PipelineSpec, target: Target, generation: int) -> None:
        """Take on a pipeline, or its new spec, target or generation."""
        known = self.pipelines.get(spec.name)
        if known is None:
            known = self.pipelines[spec.name] = Supervised(
                spec, target, generation, since_ms=self._clock.now_ms()
            )
            self._act(known)
            return
        if known.removed is not None:
            # A new one of the same name, while the old one stops: what is told of it begins anew.
            known.removed = known.progress = None
            known.failures = known.restarts = known.records_total = known.errors_total = 0
        changed = (known.spec, known.generation) != (spec, generation)
        known.spec, known.target, known.generation = spec, target, generation
        if changed:
            known.failures, known.last_error = 0, None
            self._begin_again(known)
        else:
            self._act(known)

    def restart(self, name: str) -> None:
        """From whatever it is; failures so far are forgotten."""
        pipeline = self.pipelines[name]
        pipeline.failures, pipeline.last_error = 0, None
        self._begin_again(pipeline)

    def remove(self, name: str, on_gone: OnGone = lambda _, __: None) -> None:
        pipeline = self.pipelines[name]
        pipeline.removed, pipeline.target = on_gone, Target.STOPPED
        self._act(pipeline)
        self._forget_if_gone(pipeline)

    def on_running(self, name: str, attempt: int) -> None:
        pipeline = self._current(name, attempt)
        if pipeline is not None and pipeline.state is State.STARTING:
            self._enter(pipeline, State.RUNNING)

    def on_progress(self, name: str, attempt: int, progress: Progress) -> None:
        pipeline = self._current(name, attempt)
        if pipeline is None:
            return
        pipeline.progress = progress
        pipeline.records_total += progress.records
        pipeline.errors_total += progress.errors
        if progress.records:
            pipeline.failures = 0

    def on_ended(self, name: str, attempt: int, error: str | None, *, is_final: bool = False) -> None:
        """The query is over: stopped as told, at the end of its input, or failed.

        A failure that is final would come again at every attempt: none is made.
        """
        pipeline = self._current(name, attempt)
        if pipeline is None or pipeline.state not in _AT_WORK:
            return
        if pipeline.state is State.STOPPING:
            self._rest_or_start(pipeline)
        elif error is None:
            self._enter(pipeline, State.FINISHED)
        else:
            self._failed(pipeline, error, is_final=is_final)
        self._forget_if_gone(pipeline)

    def _failed(self, pipeline: Supervised, error: str, *, is_final: bool) -> None:
        pipeline.failures += 1
        pipeline.last_error = error
        if is_final or pipeline.failures > pipeline.spec.restart.max_attempts:
            self._enter(pipeline, State.FAILED)
            return
        self._enter(pipeline, State.RESTARTING)
        delay_ms = backoff_ms(pipeline.spec.restart, pipeline.failures)
        pipeline.retry = self._timers.after(delay_ms, lambda: self._retry(pipeline))

    def _retry(self, pipeline: Supervised) -> None:
        pipeline.retry = None
        if pipeline.state is State.RESTARTING:
            pipeline.restarts += 1
            self._start(pipeline)

    def _begin_again(self, pipeline: Supervised) -> None:
        if pipeline.state in (State.STARTING, State.RUNNING):
            self._stop(pipeline)
        elif pipeline.state is not State.STOPPING:
            self._cancel_retry(pipeline)
            self._rest_or_start(pipeline)

    def _act(self, pipeline: Supervised) -> None:
        """Move towards the target."""
        if self._released is not None:
            pipeline.last_error = self._released
        elif pipeline.target is Target.RUNNING:
            if pipeline.state in (State.UNASSIGNED, State.PAUSED, State.STOPPED):
                self._start(pipeline)
        elif pipeline.state in (State.STARTING, State.RUNNING):
            self._stop(pipeline)
        elif pipeline.state is not State.STOPPING and pipeline.state is not _RESTING[pipeline.target]:
            self._cancel_retry(pipeline)
            self._enter(pipeline, _RESTING[pipeline.target])

    def _rest_or_start(self, pipeline: Supervised) -> None:
        if self._released is not None:
            pipeline.last_error = self._released
            self._enter(pipeline, State.UNASSIGNED)
        elif pipeline.target is Target.RUNNING:
            self._start(pipeline)
        elif pipeline.state is not _RESTING[pipeline.target]:
            self._enter(pipeline, _RESTING[pipeline.target])

    def _start(self, pipeline: Supervised) -> None:
        pipeline.attempt += 1
        self._enter(pipeline, State.STARTING)
        self._drivers.start(pipeline.spec, pipeline.generation, pipeline.attempt, self)

    def _stop(self, pipeline: Supervised) -> None:
        self._enter(pipeline, State.STOPPING)
        self._drivers.stop(pipeline.spec.name)

    def _cancel_retry(self, pipeline: Supervised) -> None:
        if pipeline.retry is not None:
            pipeline.retry.cancel()
            pipeline.retry = None

    def _enter(self, pipeline: Supervised, state: State) -> None:
        TRANSITIONS.check(pipeline.state, state)
        pipeline.state = state
        pipeline.since_ms = self._clock.now_ms()
        if state in _TROUBLED:
            log.warning("%s is %s: %s", pipeline.spec.name, state.value, pipeline.last_error)
        else:
            log.info("%s is %s", pipeline.spec.name, state.value)

    def _current(self, name: str, attempt: int) -> Supervised | None:
        pipeline = self.pipelines.get(name)
        return pipeline if pipeline is not None and pipeline.attempt == attempt else None

    def _forget_if_gone(self, pipeline: Supervised) -> None:
        if pipeline.removed is not None and pipeline.state not in _AT_WORK:
            self.pipelines.pop(pipeline.spec.name, None)
            pipeline.removed(pipeline.spec, pipeline.generation)


def backoff_ms(restart: Restart, failures: int) -> int:
    """The pause after this many failures in a row."""
    return int(min(restart.backoff_ms * 2 ** (failures - 1), restart.backoff_ms_max))
