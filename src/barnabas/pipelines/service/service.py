"""Operations on pipelines: the role of Connect's herder.

Every change goes to the store first and then to the supervisor, so that a restarted service continues with
every acknowledged change. Errors carry the HTTP code that Connect uses.

One of several services is the leader (`leadership`) and runs the pipelines; the others only follow.

Changes take turns under a lock, from reading the state to storing the new one. So each change sees the result
of the previous one. A change begins when everything stored so far was read. A service that stood still or was
cut off may have lost the pipelines, and would store its old copy over acknowledged changes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from barnabas.core.clock import Clock
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.tasks import Tasks
from barnabas.pipelines.service.checkpoints import last_generation, remove_generations
from barnabas.pipelines.service.config_provider_policy import NOTHING_ALLOWED, Allowances
from barnabas.pipelines.service.declarative.positions import reached
from barnabas.pipelines.service.declarative.trust import NOTHING_TRUSTED, Trusted, checked_project
from barnabas.pipelines.service.errors import AWAY, ServiceError
from barnabas.pipelines.service.leadership import Claims, Leadership, LeadershipChange
from barnabas.pipelines.service.positions import GroupOffsets, Positions, altered, by_topic, offset_row
from barnabas.pipelines.service.store import Change, Claim, Stored, Target
from barnabas.pipelines.service.supervisor import AT_REST, State, Supervised, Supervisor
from barnabas.pipelines.spec.connect.config import spec_of_config
from barnabas.pipelines.spec.declarative.project import UNREADABLE, known_project
from barnabas.pipelines.spec.model import Part, PipelineSpec
from barnabas.pipelines.spec.problems import InvalidSpec

logger = logging.getLogger(__name__)


class Store(Claims, Protocol):
    @property
    def leader(self) -> Claim | None: ...
    @property
    def deleted_generations(self) -> Mapping[str, int]: ...
    async def load(self) -> dict[str, Stored]: ...
    def follow(self) -> AsyncIterator[Change]: ...
    async def caught_up(self) -> None: ...
    async def put(self, stored: Stored) -> None: ...
    async def delete(self, name: str, generation: int) -> None: ...


class PipelineService:
    def __init__(
        self,
        store: Store,
        supervisor: Supervisor,
        groups: GroupOffsets,
        state_location: str,
        worker_id: str,
        clock: Clock,
        allowances: Allowances = NOTHING_ALLOWED,
        projects: Trusted = NOTHING_TRUSTED,
    ) -> None:
        self.supervisor = supervisor
        self._allowances = allowances
        self._projects = projects
        self._clock = clock
        self.worker_id = worker_id
        self.leadership = Leadership(store, worker_id, clock)
        self._store = store
        self._groups = groups
        self.positions = Positions(groups, state_location)
        self._state_location = state_location
        self._stored: dict[str, Stored] = {}
        self._turn = asyncio.Lock()
        self._unseen: Counter[str] = Counter()
        """Number of our stored changes of each pipeline that `follow` has not read back yet."""
        self._problems: dict[str, str] = {}
        """Reason why a stored pipeline cannot run: its configuration is not valid in this release."""
        self._deleted_generations: dict[str, int] = {}
        self._clean_ups = Tasks()

    async def open(self) -> None:
        """Claim the pipelines, and start all stored ones."""
        await self.leadership.open()
        self._stored = await self._store.load()
        self._deleted_generations = dict(self._store.deleted_generations)
        if self._store.leader is not None:  # another service may have claimed meanwhile
            self._leadership_changed(self.leadership.claimed(self._store.leader))
        for stored in self._stored.values():
            self._supervise(stored)

    async def follow(self) -> None:
        """Apply changes of other services, without end, and release the pipelines when another service claims
        them."""
        async for change in self._store.follow():
            with sweeping("following the pipelines topic", change.name):
                if change.name:
                    async with self._turn:
                        self._follow(change)
                else:
                    self._leadership_changed(await self.leadership.on_change(change))

    async def close(self) -> None:
        """Finish clean-ups, and release the claim if this service is the leader."""
        await self._clean_ups.finished()
        await self.leadership.close()

    def _leadership_changed(self, change: LeadershipChange | None) -> None:
        if change is LeadershipChange.LOST:
            self.supervisor.release(f"the pipeline service at {self.leadership.other_leader} has taken over")
        elif change is LeadershipChange.REGAINED:
            self.supervisor.regain()

    def _follow(self, change: Change) -> None:
        name = change.name
        if change.deleted_generation is not None:
            self._deleted_generations[name] = change.deleted_generation
        if self._unseen[name]:
            # Our own change is this record or a later one, and it wins.
            self._unseen[name] -= change.writer == self._store.service_id
        elif change.stored is not None:
            self._stored[name] = change.stored
            self._supervise(change.stored)
        elif self._stored.pop(name, None):
            self._remove(name)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def names(self) -> list[str]:
        return sorted(self._stored)

    def stored(self, name: str) -> Stored:
        if name not in self._stored:
            raise ServiceError(404, f"Connector {name} not found")
        return self._stored[name]

    def problem(self, name: str) -> str | None:
        """Reason why the pipeline cannot run, or None."""
        self.stored(name)
        return self._problems.get(name)

    def spec(self, name: str) -> PipelineSpec:
        stored = self.stored(name)
        if name in self._problems:
            raise ServiceError(409, self._problems[name])
        return _effective(stored)

    async def create(self, name: str, config: Mapping[str, Any], target: Target = Target.RUNNING) -> Stored:
        async with self._changing():
            if name in self._stored:
                raise ServiceError(409, f"Connector {name} already exists")
            return await self._change(self._new(name, await self._checked(name, config), target))

    def _new(self, name: str, config: Mapping[str, str], target: Target = Target.RUNNING) -> Stored:
        """A new pipeline. It begins where its spec says, even if a deleted one of the same name left state
        behind."""
        last = max(self._deleted_generations.get(name, -1), last_generation(self._state_location, name))
        return Stored(name, config, target, last + 1)

    async def configure(self, name: str, config: Mapping[str, Any]) -> tuple[Stored, bool]:
        """Set the whole configuration; returns whether the pipeline is new."""
        async with self._changing():
            known = self._stored.get(name)
            checked = await self._checked(name, config)
            wanted = self._new(name, checked) if known is None else replace(known, config=checked)
            return await self._change(wanted), known is None

    @property
    def is_leader(self) -> bool:
        return self.leadership.is_leader

    def is_at_rest(self, name: str) -> bool:
        """True unless a driver runs, starts or stops the pipeline."""
        found = self.supervisor.pipelines.get(name)
        return found is None or found.state in AT_REST

    async def keep(self, name: str, config: Mapping[str, str]) -> None:
        """Set the configuration of a pipeline that the service itself makes. The bounds on configurations of
        clients do not apply to it."""
        async with self._turn:
            known = self._stored.get(name)
            checked, _ = await asyncio.to_thread(_flat_config, name, config)
            wanted = self._new(name, checked) if known is None else replace(known, config=checked)
            await self._change(wanted)

    async def patch(self, name: str, changes: Mapping[str, Any]) -> Stored:
        """Change some settings; null removes one."""
        async with self._changing():
            known = self.stored(name)
            merged = {**known.config, **changes}
            kept = {key: value for key, value in merged.items() if value is not None}
            return await self._change(replace(known, config=await self._checked(name, kept)))

    async def delete(self, name: str) -> None:
        async with self._changing():
            self.leadership.check()
            last = self.stored(name).generation
            await self._store.delete(name, last)
            self._deleted_generations[name] = last
            self._unseen[name] += 1
            self._stored.pop(name, None)
            self._remove(name)

    def _gone(self, spec: PipelineSpec, generation: int) -> None:
        if self.leadership.is_leader and spec.name not in self._stored:
            self._clean_ups.start(self._clean_up(spec, generation))

    async def _clean_up(self, spec: PipelineSpec, generation: int) -> None:
        """Remove the checkpoints and group offsets of a deleted pipeline."""
        try:
            await asyncio.to_thread(remove_generations, self._state_location, spec.name, generation)
            await self._delete_groups(spec)
        except AWAY as error:
            logger.warning(
                "pipeline %s: its offsets and checkpoints are not all removed: %s", spec.name, error
            )

    async def _delete_groups(self, spec: PipelineSpec) -> None:
        for group_id in spec.own_groups:
            if await self._groups.offsets(group_id):
                await self._groups.delete(group_id)

    async def set_target(self, name: str, target: Target) -> None:
        async with self._changing():
            await self._change(replace(self.stored(name), target=target))

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Turn of a change, from everything that is stored when it begins."""
        self.leadership.check()
        await self._store.caught_up()
        async with self._turn:
            yield

    def restart(self, name: str, *, only_failed: bool = False) -> None:
        self.leadership.check()
        pipeline = self.pipeline(name)
        if only_failed and pipeline.state not in (State.FAILED, State.RESTARTING):
            return
        self.supervisor.restart(name)

    def pipeline(self, name: str) -> Supervised:
        self.stored(name)
        if name in self._problems:
            raise ServiceError(409, self._problems[name])
        return self.supervisor.pipelines[name]

    def supervised(self) -> list[tuple[Stored, Supervised]]:
        """Every pipeline that can run, with its stored and its supervised form."""
        return [
            (stored, self.supervisor.pipelines[name])
            for name, stored in self._stored.items()
            if name in self.supervisor.pipelines and name not in self._problems
        ]

    async def offsets(self, name: str) -> list[dict[str, Any]]:
        """Positions in Connect's form: the next offset of each partition."""
        stored = self.stored(name)
        spec = self.spec(name)
        progress = self.pipeline(name).progress
        if spec.project_file is not None:
            return await self._project_offsets(spec.project_file)
        if spec.source.type != "topic":
            found = await self.positions.document(stored, progress)
            return [{"partition": {"source": spec.source.type}, "offset": dict(found)}] if found else []
        offsets = await self.positions.of_topics(stored, spec, progress)
        return [
            offset_row(*topic_partition, offset)
            for topic_partition, offset in sorted(offsets.items())
            if offset >= 0
        ]

    async def _project_offsets(self, file: str) -> list[dict[str, Any]]:
        project = await asyncio.to_thread(known_project, Path(file))
        found = {} if project is None else (await asyncio.to_thread(reached, project.storage)).positions
        return [offset_row(*topic_partition, offset) for topic_partition, offset in sorted(found.items())]

    async def reset_offsets(self, name: str) -> None:
        """Begin again where the spec says, with a new checkpoint and no offsets in the group."""
        async with self._changing():
            stored = self._stopped(name)
            spec = self.spec(name)
            _refuse_for_project(spec)
            await self._delete_groups(spec)
            await self._change(stored.next_generation(None))

    async def set_offsets(self, name: str, rows: list[Mapping[str, Any]]) -> None:
        """Begin again at these offsets; other partitions keep theirs."""
        async with self._changing():
            await self._set_offsets(name, rows)

    async def _set_offsets(self, name: str, rows: list[Mapping[str, Any]]) -> None:
        stored = self._stopped(name)
        spec = self.spec(name)
        _refuse_for_project(spec)
        if spec.source.type != "topic":
            raise ServiceError(400, f"The offsets of a {spec.source.type} source cannot be set, only reset")
        progress = self.pipeline(name).progress
        wanted = altered(await self.positions.of_topics(stored, spec, progress), rows, spec)
        numbered = {topic_partition: offset for topic_partition, offset in wanted.items() if offset >= 0}
        if numbered:
            await self._groups.commit(spec.group_id, numbered)
        await self._change(stored.next_generation(by_topic(wanted)))

    def connector_type(self, name: str) -> str:
        if self.problem(name) is not None:
            return "unknown"
        return "sink" if self.spec(name).source.type in ("topic", "project") else "source"

    def topics(self, name: str) -> list[str]:
        spec = self.spec(name)
        names = [*spec.source.get("topics", [])] if spec.source.type == "topic" else []
        progress = self.pipeline(name).progress
        if spec.project_file is not None and progress is not None:
            names = sorted(progress.offsets)
        names += [spec.sink["topic"]] if spec.sink.get("topic") else []
        return names + ([spec.errors.dead_letter_topic] if spec.errors.dead_letter_topic else [])

    async def _checked(self, name: str, config: Mapping[str, Any]) -> dict[str, str]:
        """The settings as text. A thread reads them: SQL of a few kilobytes may take seconds to parse."""
        return await asyncio.to_thread(self._checked_here, name, config)

    def _checked_here(self, name: str, config: Mapping[str, Any]) -> dict[str, str]:
        if not name:
            raise ServiceError(400, "A connector needs a name")
        if str(config.get("name", name)) != name:
            raise ServiceError(
                400,
                f"Connector name configuration ({config['name']}) doesn't match connector name in the URL"
                f" ({name})",
            )
        flat, spec = _flat_config(name, config)
        if spec.project_file is not None:
            self._check_project(spec)
        complaints = list(self._allowances.complaints(spec))
        if complaints:
            raise _invalid(len(complaints), "\n".join(complaints))
        return flat

    def _check_project(self, spec: PipelineSpec) -> None:
        try:
            project = checked_project(Path(str(spec.project_file)), self._projects)
        except InvalidSpec as error:
            raise _invalid(len(error.problems), str(error)) from None
        except UNREADABLE as error:
            raise _invalid(1, str(error)) from None
        if project.name != spec.name:
            raise _invalid(1, f"{project.file} has the name {project.name!r}, not {spec.name!r}")

    async def _change(self, stored: Stored) -> Stored:
        self.leadership.check()
        await self._store.put(stored)
        self._unseen[stored.name] += 1
        self._stored[stored.name] = stored
        self._supervise(stored)
        return stored

    def _supervise(self, stored: Stored) -> None:
        """Pass a stored pipeline to the supervisor. An invalid configuration affects that pipeline alone."""
        try:
            spec = _effective(stored)
        except InvalidSpec as error:
            self._remove(stored.name)
            self._problems[stored.name] = (
                f"The stored configuration of {stored.name} is not valid in this release; PUT a valid one to"
                f" /connectors/{stored.name}/config, or DELETE it:\n{error}"
            )
            logger.error("%s", self._problems[stored.name])
            return
        self._problems.pop(stored.name, None)
        self.supervisor.put(spec, stored.target, stored.generation)

    def _remove(self, name: str) -> None:
        self._problems.pop(name, None)
        if name in self.supervisor.pipelines:
            self.supervisor.remove(name, self._gone)

    def _stopped(self, name: str) -> Stored:
        self.leadership.check()
        stored = self.stored(name)
        if self.pipeline(name).state is not State.STOPPED:
            raise ServiceError(
                400,
                "Connectors must be in the STOPPED state before their offsets can be modified:"
                f" PUT /connectors/{name}/stop",
            )
        return stored


def _flat_config(name: str, config: Mapping[str, Any]) -> tuple[dict[str, str], PipelineSpec]:
    """The settings as text, and their spec; raises ServiceError if they have none."""
    flat = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    flat["name"] = name
    try:
        return flat, spec_of_config(name, flat)
    except InvalidSpec as error:
        raise _invalid(len(error.problems), str(error)) from None


def _invalid(count: int, text: str) -> ServiceError:
    return ServiceError(
        400, f"Connector configuration is invalid and contains the following {count} error(s):\n{text}"
    )


def _refuse_for_project(spec: PipelineSpec) -> None:
    if spec.project_file is not None:
        raise ServiceError(
            400,
            "The offsets of a declarative pipeline are in Spark's checkpoints. While it is stopped, a full"
            f" refresh empties its tables and reads everything again: spark-pipelines run --spec"
            f" {spec.project_file} --full-refresh-all",
        )


def _effective(stored: Stored) -> PipelineSpec:
    """Spec with the starting offsets of its generation."""
    spec = spec_of_config(stored.name, stored.config)
    if stored.starting_offsets is None:
        return spec
    options = {
        **spec.source.options,
        "starting_offsets": json.dumps(stored.starting_offsets),
        "starting_timestamp": None,
    }
    return replace(spec, source=Part(spec.source.type, options))
