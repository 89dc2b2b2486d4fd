"""Hosting of declarative pipelines: Spark updates each when there are new records in its topics.

An update is a process of its own (`spark-pipelines run`). It loads the project again, catches up and ends. So
a pipeline that waits costs no JVM, and a change of the project counts from the next update on. Between two
updates the host looks at the log ends (`positions`) at a pace of its own (`pace`).

Failures go to the supervisor, which restarts the pipeline as any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.core.clock import Clock
from barnabas.core.errors import UnknownTopicOrPartition
from barnabas.core.tasks import Tasks
from barnabas.pipelines.service.declarative.log_ends import LogEnds
from barnabas.pipelines.service.declarative.pace import Pace
from barnabas.pipelines.service.declarative.positions import (
    Reached,
    reached,
    read_since,
    unread_records,
)
from barnabas.pipelines.service.declarative.trust import Trusted, checked_project
from barnabas.pipelines.service.errors import AWAY
from barnabas.pipelines.service.hosting.update_process import Outcome
from barnabas.pipelines.service.supervisor import Observer
from barnabas.pipelines.spec.declarative.project import UNREADABLE, Project
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.pipelines.state.progress import Progress
from barnabas.protocol.offset_numbers import LATEST

logger = logging.getLogger(__name__)

LOOK_TIMEOUT_S: Final = 10.0

Update = Callable[[str, asyncio.Event], Awaitable[Outcome]]


class Failed(Exception):
    """An update has failed; the message is its reason."""

    def __init__(self, reason: str, *, is_counted: bool = True) -> None:
        super().__init__(reason)
        self.is_counted = is_counted


class Tools(NamedTuple):
    """Parts that hosting uses."""

    update: Update
    ends: LogEnds
    clock: Clock
    trusted: Trusted


class Hosting:
    """Implements `supervisor.Drivers` for declarative pipelines."""

    def __init__(self, update: Update, ends: LogEnds, clock: Clock, trusted: Trusted) -> None:
        self._tools = Tools(update, ends, clock, trusted)
        self._stops: dict[str, asyncio.Event] = {}
        self._tasks = Tasks()
        self._is_closing = False

    def start(self, spec: PipelineSpec, generation: int, attempt: int, observer: Observer) -> None:  # noqa: ARG002
        if self._is_closing:
            return
        stopped = self._stops[spec.name] = asyncio.Event()
        self._tasks.start(self._host(spec, attempt, observer, stopped))

    def stop(self, name: str) -> None:
        if name in self._stops:
            self._stops[name].set()

    async def close(self) -> None:
        self._is_closing = True
        for stopped in self._stops.values():
            stopped.set()
        await self._tasks.finished()

    async def _host(
        self, spec: PipelineSpec, attempt: int, observer: Observer, stopped: asyncio.Event
    ) -> None:
        error: str | None = None
        is_counted = True
        try:
            await _Hosted(spec, attempt, observer, stopped, self._tools).keep()
        except Failed as failure:
            error, is_counted = str(failure), failure.is_counted
        except AWAY as failure:
            error, is_counted = f"the cluster is out of reach: {failure}", False
        except Exception as failure:
            # The pipeline is no longer hosted, so it must not appear to run.
            logger.exception("pipeline %s: hosting it has failed", spec.name)
            error = f"hosting the pipeline has failed: {failure!r}"
        observer.on_ended(spec.name, attempt, error, is_counted=is_counted)


class _Hosted:
    """One pipeline from its start to its stop or failure."""

    def __init__(
        self, spec: PipelineSpec, attempt: int, observer: Observer, stopped: asyncio.Event, tools: Tools
    ) -> None:
        assert spec.project_file is not None
        self._spec = spec
        self._file = Path(spec.project_file)
        self._attempt = attempt
        self._observer = observer
        self._stopped = stopped
        self._tools = tools
        self._pace = Pace(spec.source["min_interval_ms"], spec.source["max_interval_ms"])
        self._updates = 0

    async def keep(self) -> None:
        """Update the pipeline until it is stopped; raises Failed when an update fails."""
        project = await self._project()
        self._observer.on_running(self._spec.name, self._attempt)
        while not self._stopped.is_set():
            found, unread = await self._look(project)
            now_ms = self._tools.clock.now_ms()
            if self._pace.is_due(now_ms, unread):
                project = await self._project()
                await self._run(project, found)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pace.next_look_ms(now_ms, unread) / 1_000):
                        await self._stopped.wait()

    async def _project(self) -> Project:
        """The project as it is now; raises Failed if it cannot be run."""
        try:
            project = await asyncio.to_thread(checked_project, self._file, self._tools.trusted)
        except UNREADABLE as error:
            raise Failed(str(error)) from None
        if project.name != self._spec.name:
            raise Failed(f"{self._file} has the name {project.name!r} now, not {self._spec.name!r}")
        return project

    async def _look(self, project: Project) -> tuple[Reached, int | None]:
        """Positions and unread records. A cluster out of reach hides them: the next look may see them."""
        found = await asyncio.to_thread(reached, project.storage)
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                return found, await unread_records(found, project.topics, self._tools.ends)
        except (*AWAY, TimeoutError) as error:
            logger.debug("pipeline %s: the log ends are unknown: %s", project.name, error)
            return found, None

    async def _run(self, project: Project, before: Reached) -> None:
        clock = self._tools.clock
        letters = await self._letters()
        started_ms = clock.now_ms()
        self._pace.start(started_ms)
        outcome = await self._tools.update(str(self._file), self._stopped)
        if self._stopped.is_set():
            return
        if outcome.error is not None:
            raise Failed(outcome.error, is_counted=not outcome.is_away)
        after, unread = await self._look(project)
        self._pace.end(is_stuck=bool(unread) and after.positions == before.positions)
        duration_ms = max(clock.now_ms() - started_ms, 1)
        records = await self._read_since(before, after)
        letters_now = await self._letters()
        progress = Progress(
            pipeline=self._spec.name,
            batch_id=self._updates,
            records=records,
            records_per_second=records * 1_000 / duration_ms,
            batch_ms=duration_ms,
            errors=0 if letters is None or letters_now is None else max(0, letters_now - letters),
            lag=unread,
            offsets=_by_topic(after),
            sink={"updated_at_ms": clock.now_ms(), "flows": after.flows},
        )
        self._updates += 1
        self._observer.on_progress(self._spec.name, self._attempt, progress)

    async def _read_since(self, before: Reached, after: Reached) -> int:
        try:
            return await read_since(before, after, self._tools.ends)
        except AWAY:
            return 0

    async def _letters(self) -> int | None:
        """Records that the topic of dead letters has ever had; None if that is unknown."""
        topic = self._spec.errors.dead_letter_topic
        if topic is None:
            return None
        try:
            return sum((await self._tools.ends.offsets(topic, LATEST)).values())
        except UnknownTopicOrPartition:
            return 0
        except AWAY:
            return None


def _by_topic(found: Reached) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(found.positions.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics
