"""Supervisor of pipelines: drives each towards its target state and reports its actual state.

Each pipeline is a small state machine between a target (running, paused, stopped) and a driver that starts
and stops queries. A failed pipeline restarts after a pause that doubles. After `max_attempts` failures
without a micro-batch between them it stays FAILED until a user restarts it.

Some failures do not count: an unreachable broker, database or registry, or the death of a driver that several
pipelines shared. The pipeline then retries without limit. This module does no I/O: drivers, clock and timers
are passed in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock
from barnabas.core.scheduler import Cancellable, Timers
from barnabas.core.transitions import Transitions
from barnabas.pipelines.service.recent import PastErrors, Rate
from barnabas.pipelines.service.store import Target
from barnabas.pipelines.spec.model import PipelineSpec, Restart
from barnabas.pipelines.state.progress import Progress

logger = logging.getLogger(__name__)


class State(Enum):
    UNASSIGNED = "UNASSIGNED"
    """Not started yet, or run by another service."""
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    RESTARTING = "RESTARTING"
    """Waiting for the next attempt, after a failure or while a peer is out of reach."""
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FINISHED = "FINISHED"
    """Read all available records, as its trigger asked."""
    FAILED = "FAILED"


AT_REST = frozenset(
    {State.UNASSIGNED, State.RESTARTING, State.PAUSED, State.STOPPED, State.FINISHED, State.FAILED}
)
"""States without a query in a driver."""
_TROUBLED = frozenset({State.RESTARTING, State.FAILED})
_AT_WORK = frozenset({State.STARTING, State.RUNNING, State.STOPPING})

TRANSITIONS = Transitions(
    {
        State.UNASSIGNED: AT_REST | {State.STOPPING},
        State.STARTING: AT_REST | {State.STOPPING},
        State.RUNNING: frozenset({State.STARTING}),
        State.STOPPING: frozenset({State.STARTING, State.RUNNING}),
        State.RESTARTING: _AT_WORK,
        State.PAUSED: AT_REST | {State.STOPPING},
        State.STOPPED: AT_REST | {State.STOPPING},
        State.FINISHED: frozenset({State.STARTING, State.RUNNING}),
        State.FAILED: _AT_WORK | AT_REST,
    }
)

_RESTING = {Target.PAUSED: State.PAUSED, Target.STOPPED: State.STOPPED}


class Observer(Protocol):
    """Receiver of a pipeline's events."""

    def on_running(self, name: str, attempt: int) -> None: ...
    def on_progress(self, name: str, attempt: int, progress: Progress) -> None: ...
    def on_ended(
        self, name: str, attempt: int, error: str | None, *, is_final: bool = False, is_counted: bool = True
    ) -> None: ...


class Drivers(Protocol):
    """Starts and stops queries in driver processes."""

    def start(self, spec: PipelineSpec, generation: int, attempt: int, observer: Observer) -> None: ...
    def stop(self, name: str) -> None: ...


OnGone = Callable[[PipelineSpec, int], None]
"""Called with a removed pipeline and its generation when it no longer runs."""


@dataclass(slots=True)
class Supervised:
    spec: PipelineSpec
    target: Target
    generation: int
    state: State = State.UNASSIGNED
    attempt: int = 0
    """Number of the start, so that events of an earlier start are ignored."""
    failures: int = 0
    waits: int = 0
    """Consecutive attempts that ended with an error which does not count."""
    restarts: int = 0
    last_error: str | None = None
    progress: Progress | None = None
    """Last report of this generation."""
    lag: int | None = None
    """Unread records of the source, from the last report or from the source's end offsets."""
    records_total: int = 0
    errors_total: int = 0
    since_ms: int = 0
    rate: Rate = field(default_factory=Rate, repr=False)
    past_errors: PastErrors = field(default_factory=PastErrors, repr=False)
    removed: OnGone | None = None
    """Callback of a removed pipeline that is still stopping."""
    retry: Cancellable | None = field(default=None, repr=False)


class Supervisor:
    def __init__(self, drivers: Drivers, timers: Timers, clock: Clock) -> None:
        self.pipelines: dict[str, Supervised] = {}
        self._drivers = drivers
        self._timers = timers
        self._clock = clock
        self._released: str | None = None
        """Reason why this service runs no pipelines."""

    def release(self, reason: str) -> None:
        """Stop every pipeline and start none: another service runs them."""
        self._released = reason
        for pipeline in self.pipelines.values():
            pipeline.last_error = reason
            if pipeline.state in (State.STARTING, State.RUNNING):
                self._stop(pipeline)
            elif pipeline.state is not State.STOPPING:
                self._cancel_retry(pipeline)
                self._enter(pipeline, State.UNASSIGNED)

    def regain(self) -> None:
        """Start the released pipelines again."""
        self._released = None
        for pipeline in self.pipelines.values():
            pipeline.last_error = None
            self._act(pipeline)

    def put(self, spec: PipelineSpec, target: Target, generation: int) -> None:
        """Add a pipeline, or apply its new spec, target or generation."""
        known = self.pipelines.get(spec.name)
        if known is None:
            known = self.pipelines[spec.name] = Supervised(
                spec, target, generation, since_ms=self._clock.now_ms()
            )
            self._act(known)
            return
        if known.removed is not None:
            # A new pipeline of the same name, while the old one stops: its counters start from zero.
            known.removed = known.progress = known.lag = None
            known.failures = known.restarts = known.records_total = known.errors_total = 0
            known.rate, known.past_errors = Rate(), PastErrors()
        if known.generation != generation:
            # A new generation begins at other offsets, so the old progress does not apply.
            known.progress = known.lag = None
        changed = (known.spec, known.generation) != (spec, generation)
        known.spec, known.target, known.generation = spec, target, generation
        if changed:
            known.failures, known.waits, known.last_error = 0, 0, None
            self._begin_again(known)
        else:
            self._act(known)

    def restart(self, name: str) -> None:
        """Restart from any state, with the failure counters at zero."""
        pipeline = self.pipelines[name]
        pipeline.failures, pipeline.waits, pipeline.last_error = 0, 0, None
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
        pipeline.progress, pipeline.lag = progress, progress.lag
        pipeline.records_total += progress.records
        pipeline.errors_total += progress.errors
        pipeline.rate.add(self._clock.now_ms(), progress.records)
        # A declarative pipeline reports only when an update has caught up.
        if progress.records or pipeline.spec.project_file is not None:
            pipeline.failures = pipeline.waits = 0
            # The micro-batch that failed has been written, so its error is over.
            pipeline.last_error = None

    def on_ended(
        self, name: str, attempt: int, error: str | None, *, is_final: bool = False, is_counted: bool = True
    ) -> None:
        """Handle the end of a query: stopped on request, at the end of its input, or failed.

        A final failure would repeat at every attempt, so no attempt follows. A failure that does not count is
        not the pipeline's fault: attempts continue until one succeeds.
        """
        pipeline = self._current(name, attempt)
        if pipeline is None or pipeline.state not in _AT_WORK:
            return
        if pipeline.state is State.STOPPING:
            self._rest_or_start(pipeline)
        elif error is None:
            self._enter(pipeline, State.FINISHED)
        else:
            self._failed(pipeline, error, is_final=is_final, is_counted=is_counted)
        self._forget_if_gone(pipeline)

    def _failed(self, pipeline: Supervised, error: str, *, is_final: bool, is_counted: bool) -> None:
        pipeline.failures += is_counted
        pipeline.waits += not is_counted
        pipeline.last_error = error
        pipeline.past_errors.add(self._clock.now_ms(), error)
        if is_final or pipeline.failures > pipeline.spec.restart.max_attempts:
            self._enter(pipeline, State.FAILED)
            return
        self._enter(pipeline, State.RESTARTING)
        in_a_row = pipeline.failures if is_counted else pipeline.waits
        delay_ms = backoff_ms(pipeline.spec.restart, in_a_row)
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
        """Move towards the target state."""
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
            logger.warning("pipeline %s is %s: %s", pipeline.spec.name, state.value, pipeline.last_error)
        else:
            logger.info("pipeline %s is %s", pipeline.spec.name, state.value)

    def _current(self, name: str, attempt: int) -> Supervised | None:
        pipeline = self.pipelines.get(name)
        return pipeline if pipeline is not None and pipeline.attempt == attempt else None

    def _forget_if_gone(self, pipeline: Supervised) -> None:
        if pipeline.removed is not None and pipeline.state not in _AT_WORK:
            self.pipelines.pop(pipeline.spec.name, None)
            pipeline.removed(pipeline.spec, pipeline.generation)


def backoff_ms(restart: Restart, failures: int) -> int:
    """Pause after this many consecutive failures."""
    return int(Backoff(restart.backoff_ms, restart.backoff_ms_max).after_ms(failures - 1))
