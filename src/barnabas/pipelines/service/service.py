"""What can be done with pipelines, whoever asks: Connect's herder.

Every change goes to the store first and then to the supervisor, so that a service that is
started again carries on with what was answered. Errors carry the HTTP code that Connect uses.

Of several services one is the leader (`leadership`), and runs the pipelines; the others only follow.

Changes take turns, from looking at what there is to having stored what shall be: each begins with
what the one before it has left.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from barnabas.core.clock import Clock
from barnabas.core.ids import TopicPartition
from barnabas.core.sweeping import sweeping
from barnabas.core.tasks import Tasks
from barnabas.pipelines.progress import partition_offsets
from barnabas.pipelines.service.allowances import NOTHING_ALLOWED, Allowances
from barnabas.pipelines.service.checkpoints import committed_offsets, last_generation, remove_generations
from barnabas.pipelines.service.connect_offsets import offset_row, place_and_offset
from barnabas.pipelines.service.errors import AWAY, ServiceError
from barnabas.pipelines.service.leadership import Claims, Leadership, LeadershipChange
from barnabas.pipelines.service.store import Change, Claim, Stored, Target
from barnabas.pipelines.service.supervisor import State, Supervised, Supervisor
from barnabas.pipelines.spec.connect_config import spec_of_config
from barnabas.pipelines.spec.model import Part, PipelineSpec
from barnabas.pipelines.spec.problems import InvalidSpec

log = logging.getLogger(__name__)


class Store(Claims, Protocol):
    @property
    def leader(self) -> Claim | None: ...
    @property
    def deleted_generations(self) -> Mapping[str, int]: ...
    async def load(self) -> dict[str, Stored]: ...
    def follow(self) -> AsyncIterator[Change]: ...
    async def put(self, stored: Stored) -> None: ...
    async def delete(self, name: str, generation: int) -> None: ...


class GroupOffsets(Protocol):
    """The offsets of consumer groups, as `client.groups.Groups` has them."""

    async def offsets(self, group_id: str) -> dict[TopicPartition, int]: ...
    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None: ...
    async def delete(self, group_id: str) -> None: ...


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
    ) -> None:
        self.supervisor = supervisor
        self._allowances = allowances
        self.worker_id = worker_id
        self.leadership = Leadership(store, worker_id, clock)
        self._store = store
        self._groups = groups
        self._state_location = state_location
        self._stored: dict[str, Stored] = {}
        self._turn = asyncio.Lock()
        self._unseen: Counter[str] = Counter()
        """Of each pipeline, our changes that are stored and that `follow` has not come across yet."""
        self._problems: dict[str, str] = {}
        """Why a stored pipeline cannot be run: its configuration makes no sense to this release."""
        self._deleted_generations: dict[str, int] = {}
        self._clean_ups = Tasks()

    async def open(self) -> None:
        """Take up everything that is stored, from whichever service ran it before."""
        await self.leadership.open()
        self._stored = await self._store.load()
        self._deleted_generations = dict(self._store.deleted_generations)
        if self._store.leader is not None:  # another may have come meanwhile
            self._leadership_changed(self.leadership.claimed(self._store.leader))
        for stored in self._stored.values():
            self._supervise(stored)

    async def follow(self) -> None:
        """Without end: take up what another service changed, and let go when it has claimed the pipelines."""
        async for change in self._store.follow():
            with sweeping("following the topic of pipelines", change.name):
                if change.name:
                    async with self._turn:
                        self._follow(change)
                else:
                    self._leadership_changed(await self.leadership.heard(change))

    async def close(self) -> None:
        """Everything here has ended: release the claim, if this service is the leader."""
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
            # Ours is here or comes later, and is what holds.
            self._unseen[name] -= change.writer == self._store.service_id
        elif change.stored is not None:
            self._stored[name] = change.stored
            self._supervise(change.stored)
        elif self._stored.pop(name, None):
            self._remove(name)

    def names(self) -> list[str]:
        return sorted(self._stored)

    def stored(self, name: str) -> Stored:
        if name not in self._stored:
            raise ServiceError(404, f"Connector {name} not found")
        return self._stored[name]

    def problem(self, name: str) -> str | None:
        """Why the pipeline cannot be run, if it cannot."""
        self.stored(name)
        return self._problems.get(name)

    def spec(self, name: str) -> PipelineSpec:
        stored = self.stored(name)
        if name in self._problems:
            raise ServiceError(409, self._problems[name])
        return _effective(stored)

    async def create(self, name: str, config: Mapping[str, Any], target: Target = Target.RUNNING) -> Stored:
        async with self._turn:
            if name in self._stored:
                raise ServiceError(409, f"Connector {name} already exists")
            return await self._change(self._new(name, self._checked(name, config), target))

    def _new(self, name: str, config: Mapping[str, str], target: Target = Target.RUNNING) -> Stored:
        """A pipeline that begins where its spec says, whatever one of the same name has left behind."""
        last = max(self._deleted_generations.get(name, -1), last_generation(self._state_location, name))
        return Stored(name, config, target, last + 1)

    async def configure(self, name: str, config: Mapping[str, Any]) -> tuple[Stored, bool]:
        """Set the whole configuration; says whether the pipeline is new."""
        async with self._turn:
            known = self._stored.get(name)
            checked = self._checked(name, config)
            wanted = self._new(name, checked) if known is None else replace(known, config=checked)
            return await self._change(wanted), known is None

    async def patch(self, name: str, changes: Mapping[str, Any]) -> Stored:
        """Change some settings; null removes one."""
        async with self._turn:
            known = self.stored(name)
            merged = {**known.config, **changes}
            kept = {key: value for key, value in merged.items() if value is not None}
            return await self._change(replace(known, config=self._checked(name, kept)))

    async def delete(self, name: str) -> None:
        async with self._turn:
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
        """Remove what a pipeline that was deleted leaves beside what it wrote."""
        try:
            await asyncio.to_thread(remove_generations, self._state_location, spec.name, generation)
            if await self._groups.offsets(spec.group_id):
                await self._groups.delete(spec.group_id)
        except AWAY as error:
            log.warning("the offsets and checkpoints of %s are not all removed: %s", spec.name, error)

    async def set_target(self, name: str, target: Target) -> None:
        async with self._turn:
            await self._change(replace(self.stored(name), target=target))

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

    async def offsets(self, name: str) -> list[dict[str, Any]]:
        """In Connect's form: of each partition the offset that comes next."""
        stored = self.stored(name)
        spec = self.spec(name)
        progress = self.pipeline(name).progress
        home = f"{self._state_location.rstrip('/')}/{name}/{stored.generation}/checkpoint"
        found: Mapping[str, Any] = progress.offsets if progress is not None else committed_offsets(home)
        by_topic = partition_offsets(found or stored.starting_offsets or {})
        if spec.source.type == "topic" and not by_topic:
            for (topic, partition), offset in sorted((await self._groups.offsets(spec.group_id)).items()):
                by_topic.setdefault(topic, {})[partition] = offset
        if by_topic:
            return [
                offset_row(topic, partition, offset)
                for topic, partitions in sorted(by_topic.items())
                for partition, offset in sorted(partitions.items())
            ]
        return [{"partition": {"source": spec.source.type}, "offset": dict(found)}] if found else []

    async def reset_offsets(self, name: str) -> None:
        """Begin again where the spec says: a new, empty checkpoint, and no offsets in the group."""
        async with self._turn:
            stored = self._stopped(name)
            spec = self.spec(name)
            if await self._groups.offsets(spec.group_id):
                await self._groups.delete(spec.group_id)
            await self._change(stored.next_generation(None))

    async def set_offsets(self, name: str, rows: list[Mapping[str, Any]]) -> None:
        """Begin again at these offsets; partitions not named keep theirs."""
        async with self._turn:
            await self._set_offsets(name, rows)

    async def _set_offsets(self, name: str, rows: list[Mapping[str, Any]]) -> None:
        stored = self._stopped(name)
        spec = self.spec(name)
        if spec.source.type != "topic":
            raise ServiceError(400, f"The offsets of a {spec.source.type} source cannot be set, only reset")
        wanted: dict[str, dict[str, int]] = {}
        for row in [*await self.offsets(name), *rows]:
            topic, partition, offset = place_and_offset(row)
            wanted.setdefault(topic, {})[str(partition)] = offset
        by_partition = {
            TopicPartition(topic, int(partition)): offset
            for topic, partitions in wanted.items()
            for partition, offset in partitions.items()
        }
        await self._groups.commit(spec.group_id, by_partition)
        await self._change(stored.next_generation(wanted))

    def connector_type(self, name: str) -> str:
        if self.problem(name) is not None:
            return "unknown"
        return "sink" if self.spec(name).source.type == "topic" else "source"

    def topics(self, name: str) -> list[str]:
        spec = self.spec(name)
        names = [*spec.source.get("topics", [])] if spec.source.type == "topic" else []
        names += [spec.sink["topic"]] if spec.sink.get("topic") else []
        return names + ([spec.errors.dead_letter_topic] if spec.errors.dead_letter_topic else [])

    def _checked(self, name: str, config: Mapping[str, Any]) -> dict[str, str]:
        if not name:
            raise ServiceError(400, "A connector needs a name")
        if str(config.get("name", name)) != name:
            raise ServiceError(
                400,
                f"Connector name configuration ({config['name']}) doesn't match connector name in the URL"
                f" ({name})",
            )
        flat = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
        flat["name"] = name
        try:
            spec = spec_of_config(name, flat)
        except InvalidSpec as error:
            raise _invalid(len(error.problems), str(error)) from None
        complaints = list(self._allowances.complaints(spec))
        if complaints:
            raise _invalid(len(complaints), "\n".join(complaints))
        return flat

    async def _change(self, stored: Stored) -> Stored:
        self.leadership.check()
        await self._store.put(stored)
        self._unseen[stored.name] += 1
        self._stored[stored.name] = stored
        self._supervise(stored)
        return stored

    def _supervise(self, stored: Stored) -> None:
        """A configuration that another release wrote may make no sense here: that concerns it alone."""
        try:
            spec = _effective(stored)
        except InvalidSpec as error:
            self._remove(stored.name)
            self._problems[stored.name] = (
                f"The stored configuration of {stored.name} is not valid in this release; PUT a valid one to"
                f" /connectors/{stored.name}/config, or DELETE it:\n{error}"
            )
            log.error("%s", self._problems[stored.name])
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


def _invalid(count: int, text: str) -> ServiceError:
    return ServiceError(
        400, f"Connector configuration is invalid and contains the following {count} error(s):\n{text}"
    )


def _effective(stored: Stored) -> PipelineSpec:
    """The spec, beginning where its generation begins."""
    spec = spec_of_config(stored.name, stored.config)
    if stored.starting_offsets is None:
        return spec
    options = {
        **spec.source.options,
        "starting_offsets": json.dumps(stored.starting_offsets),
        "starting_timestamp": None,
    }
    return replace(spec, source=Part(spec.source.type, options))
