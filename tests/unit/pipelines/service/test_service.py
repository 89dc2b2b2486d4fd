"""Changes of one pipeline that come at the same time, or from two services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from tests.support.manual_time import ManualClock, ManualScheduler

from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.ids import TopicPartition
from barnabas.pipelines.service import leadership
from barnabas.pipelines.service.errors import ServiceError
from barnabas.pipelines.service.leadership import SILENCE_MS
from barnabas.pipelines.service.service import PipelineService
from barnabas.pipelines.service.store import Change, Claim, Stored, Target
from barnabas.pipelines.service.supervisor import Observer, State, Supervisor
from barnabas.pipelines.spec.model import PipelineSpec

CONFIG = {"connector.class": "RateSource", "topic": "numbers"}


class SlowStore:
    """Every write takes a while; writes end in the order in which they began."""

    service_id = "s"

    def __init__(self) -> None:
        self.leader: Claim | None = None
        self.rows: dict[str, Stored] = {}
        self.changes: list[Change] = []
        """Future content of the topic."""
        self.deleted_generations: dict[str, int] = {}
        self.written: list[str] = []
        """Claims, beats and farewells."""
        self.failure: Exception | None = None
        """Why a claim cannot be made now."""
        self.catch_up: Callable[[], Awaitable[None]] = partial(asyncio.sleep, 0)
        self._turn = asyncio.Lock()

    async def claim(self, worker_id: str) -> None:
        if self.failure is not None:
            raise self.failure
        self.leader = Claim(self.service_id, worker_id)
        self.written.append("claim")
        self.changes.append(Change(self.service_id, claim=self.leader))

    async def heartbeat(self) -> None:
        self.written.append("heartbeat")

    async def release(self) -> None:
        self.written.append("release")

    async def load(self) -> dict[str, Stored]:
        return {}

    async def follow(self) -> AsyncIterator[Change]:
        for change in self.changes:
            yield change

    async def caught_up(self) -> None:
        await self.catch_up()

    async def put(self, stored: Stored) -> None:
        async with self._turn:
            await asyncio.sleep(0)
            self.rows[stored.name] = stored

    async def delete(self, name: str, generation: int) -> None:
        async with self._turn:
            await asyncio.sleep(0)
            self.rows.pop(name, None)


class NoDrivers:
    def start(self, spec: PipelineSpec, generation: int, attempt: int, observer: Observer) -> None: ...
    def stop(self, name: str) -> None: ...


class NoGroups:
    async def offsets(self, group_id: str) -> dict[TopicPartition, int]:
        await asyncio.sleep(0)
        return {}

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None: ...
    async def delete(self, group_id: str) -> None: ...


class KeptGroups(NoGroups):
    """Groups with an offset each, until they are deleted."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)

    async def offsets(self, group_id: str) -> dict[TopicPartition, int]:
        return {TopicPartition("orders", 0): 1} if group_id in self.names else {}

    async def delete(self, group_id: str) -> None:
        self.names.remove(group_id)


class World:
    def __init__(self, state: Path) -> None:
        self.clock = ManualClock()
        self.state = state
        self.store = SlowStore()
        self.supervisor = Supervisor(NoDrivers(), ManualScheduler(self.clock), self.clock)
        self.service = PipelineService(self.store, self.supervisor, NoGroups(), str(state), "w:1", self.clock)

    async def follow(self, *changes: Change) -> None:
        self.store.changes = list(changes)
        await self.service.follow()

    def check_agreement(self) -> None:
        """The service's state equals the state after its next start."""
        assert {name: self.service.stored(name) for name in self.service.names()} == self.store.rows
        assert sorted(self.supervisor.pipelines) == sorted(self.store.rows)


@pytest.fixture
async def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    await found.service.open()
    return found


async def test_a_pause_does_not_take_back_a_configuration(world: World) -> None:
    await world.service.create("p", CONFIG)
    faster = {**CONFIG, "rows_per_second": "99"}
    await asyncio.gather(world.service.configure("p", faster), world.service.set_target("p", Target.PAUSED))
    stored = world.service.stored("p")
    assert (stored.config["rows_per_second"], stored.target) == ("99", Target.PAUSED)
    world.check_agreement()


async def test_two_patches_are_both_made(world: World) -> None:
    await world.service.create("p", CONFIG)
    await asyncio.gather(
        world.service.patch("p", {"rows_per_second": "99"}), world.service.patch("p", {"topic": "other"})
    )
    assert world.service.stored("p").config.items() >= {"rows_per_second": "99", "topic": "other"}.items()
    world.check_agreement()


async def test_a_name_is_given_once(world: World) -> None:
    outcomes = await asyncio.gather(
        *(world.service.create("p", {**CONFIG, "topic": topic}) for topic in ("one", "two")),
        return_exceptions=True,
    )
    assert [type(each) for each in outcomes] == [Stored, ServiceError]
    assert world.service.stored("p").config["topic"] == "one"
    world.check_agreement()


async def test_what_is_deleted_meanwhile_is_not_brought_back(world: World) -> None:
    await world.service.create("p", CONFIG)
    _, refused = await asyncio.gather(
        world.service.delete("p"), world.service.set_target("p", Target.PAUSED), return_exceptions=True
    )
    assert isinstance(refused, ServiceError)
    assert world.store.rows == {}


async def test_a_deleted_pipeline_leaves_no_group(world: World) -> None:
    groups = KeptGroups("pipeline-p", "pipeline-p-dead-letters", "pipeline-p-quarantine", "pipeline-p-2")
    world.service._groups = groups
    await world.service.create("p", CONFIG, Target.STOPPED)
    await world.service.delete("p")
    await world.service._clean_ups.finished()
    assert groups.names == {"pipeline-p-2"}


async def test_offsets_are_not_reset_under_a_pipeline_that_is_resumed(world: World) -> None:
    await world.service.create("p", CONFIG, Target.STOPPED)
    assert world.service.pipeline("p").state is State.STOPPED
    await asyncio.gather(world.service.reset_offsets("p"), world.service.set_target("p", Target.RUNNING))
    stored = world.service.stored("p")
    assert (stored.generation, stored.target) == (1, Target.RUNNING)
    world.check_agreement()


async def test_the_last_change_in_the_topic_holds_from_any_service(world: World) -> None:
    ours = await world.service.create("p", CONFIG)
    theirs = Stored("p", {**CONFIG, "topic": "theirs"})
    world.store.changes = [Change("elder", name="p", stored=theirs), Change("s", name="p", stored=ours)]
    await world.service.follow()
    assert world.service.stored("p") == ours
    world.store.changes = [Change("elder", name="p", stored=theirs)]
    await world.service.follow()
    assert world.service.stored("p") == theirs


async def test_a_change_that_was_stored_though_it_seemed_to_fail_is_taken_up(world: World) -> None:
    stored = Stored("p", CONFIG)
    world.store.changes = [Change("s", name="p", stored=stored)]
    await world.service.follow()
    assert world.service.stored("p") == stored
    assert world.service.pipeline("p").state is State.STARTING


async def test_a_pipeline_that_is_made_again_has_a_checkpoint_of_its_own(world: World) -> None:
    """Whether the service remembers the old one, or only its directory does."""
    checkpoint = world.state / "p" / "0" / "checkpoint"
    await world.service.create("p", CONFIG, Target.STOPPED)
    checkpoint.mkdir(parents=True)
    await world.service.delete("p")
    assert (await world.service.create("p", CONFIG, Target.STOPPED)).generation == 1
    await world.service.close()
    assert not checkpoint.exists()
    (world.state / "q" / "3").mkdir(parents=True)  # of another cluster's pipeline, say
    assert (await world.service.configure("q", CONFIG))[0].generation == 4
    await world.follow(Change("elder", name="r", deleted_generation=6))
    assert (await world.service.create("r", CONFIG)).generation == 7


def theirs(worker_id: str = "other:1") -> Change:
    return Change("other", claim=Claim("other", worker_id))


async def test_a_leader_that_ends_releases_its_claim(world: World) -> None:
    await world.service.create("p", CONFIG)
    await world.follow(theirs())
    assert world.service.leadership.other_leader == "other:1"
    await world.follow(Change("s", is_release=True), Change("third", is_release=True))
    assert world.service.leadership.other_leader == "other:1"  # they were not the leader
    world.store.written = []
    await world.follow(Change("other", is_release=True))
    assert world.store.written == ["claim"]
    assert world.service.leadership.other_leader is None
    world.supervisor.on_ended("p", 1, None)
    assert world.service.pipeline("p").state is State.STARTING
    await world.service.set_target("p", Target.PAUSED)
    await world.service.close()
    assert world.store.written[-1] == "release"


async def test_a_leader_that_dies_is_replaced(world: World) -> None:
    await world.service.create("p", CONFIG)
    await world.service.leadership.tick()
    assert world.store.written[-1] == "heartbeat"
    await world.follow(theirs())
    world.store.written = []
    for change in (Change("other", is_heartbeat=True), Change("", is_gap=True)):
        world.clock.advance(ms=SILENCE_MS)
        await world.service.leadership.tick()
        await world.follow(change)
    world.clock.advance(ms=SILENCE_MS)
    await world.service.leadership.tick()
    await world.service.close()
    assert world.store.written == []
    await world.follow(Change("third", is_heartbeat=True))
    world.clock.advance(ms=1)
    await world.service.leadership.tick()
    await world.follow(*world.store.changes)
    assert (world.store.written, world.service.leadership.other_leader) == (["claim"], None)


async def test_a_change_begins_with_what_other_services_have_stored(world: World) -> None:
    """A service that stood still has not read that another one runs the pipelines, and has changed them."""
    await world.service.create("p", CONFIG)
    world.store.catch_up = partial(world.follow, theirs())
    for change in (
        world.service.configure("p", {**CONFIG, "topic": "old"}),
        world.service.patch("p", {"topic": "old"}),
        world.service.set_target("p", Target.PAUSED),
        world.service.delete("p"),
        world.service.create("q", CONFIG),
        world.service.set_offsets("p", []),
        world.service.reset_offsets("p"),
    ):
        world.service.leadership.claimed(Claim("s", "w:1"))
        with pytest.raises(ServiceError, match="other:1 has taken over"):
            await change
    assert world.store.rows == {"p": Stored("p", {**CONFIG, "name": "p"})}


async def test_a_wall_clock_that_jumps_makes_no_leader_silent(world: World) -> None:
    await world.follow(theirs())
    world.store.written = []
    world.clock.jump(ms=10 * SILENCE_MS)
    await world.service.leadership.tick()
    assert world.store.written == []
    world.clock.jump(ms=-20 * SILENCE_MS)
    world.clock.advance(ms=SILENCE_MS + 1)
    await world.service.leadership.tick()
    assert world.store.written == ["claim"]


async def test_a_service_that_stood_still_reads_before_it_takes_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeats of the leader wait to be read."""
    await world.follow(theirs())
    world.store.written = []
    slept: list[float] = []

    async def stand_still(_: float) -> None:
        slept.append(SILENCE_MS + 1)
        if len(slept) > 1:
            raise asyncio.CancelledError
        world.clock.advance(ms=SILENCE_MS + 1)

    monkeypatch.setattr(asyncio, "sleep", stand_still)
    with pytest.raises(asyncio.CancelledError):
        await world.service.leadership.keep()
    assert world.store.written == []


async def is_leading(world: World) -> bool:
    world.store.written = []
    await world.service.leadership.tick()
    return world.store.written == ["heartbeat"]


@pytest.mark.parametrize("is_ours_last", [True, False])
async def test_of_two_that_claim_at_once_one_leads(world: World, is_ours_last: bool) -> None:
    """The last claim in the topic holds, in any order of reading them."""
    await world.service.create("p", CONFIG)
    await world.follow(theirs())
    third = Change("third", claim=Claim("third", "third:1"))
    await world.follow(Change("other", is_release=True), *([third] if is_ours_last else []))
    if not is_ours_last:
        await world.follow(third)
    assert world.service.leadership.other_leader == (None if is_ours_last else "third:1")
    assert await is_leading(world) is is_ours_last


async def test_a_claim_that_cannot_be_made_when_the_leader_ends_is_made_later(world: World) -> None:
    """Services and brokers are often stopped together."""
    await world.follow(theirs())
    world.store.failure = ClusterUnreachable(["no broker answers"])
    await world.follow(Change("other", is_release=True))
    world.store.failure = None
    world.clock.advance(ms=SILENCE_MS + 1)
    world.store.changes = []
    await world.service.leadership.tick()
    await world.follow(*world.store.changes)
    assert await is_leading(world)


async def test_a_change_that_breaks_something_does_not_end_the_following(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def put(*_: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(world.supervisor, "put", put)
    world.store.changes = [
        Change("other", name="p", stored=Stored("p", {**CONFIG, "name": "p"})),
        Change("other", claim=Claim("other", "worker:2")),
    ]
    await world.service.follow()
    assert world.service.leadership.other_leader == "worker:2"
    assert "no room" in caplog.text


async def test_an_unexpected_failure_does_not_end_the_signs_of_life(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = []

    async def tick() -> None:
        ticks.append("tick")
        if len(ticks) > 1:
            raise asyncio.CancelledError
        raise RuntimeError("out of order")

    monkeypatch.setattr(world.service.leadership, "tick", tick)
    monkeypatch.setattr(leadership, "HEARTBEAT_MS", 1)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(world.service.leadership.keep(), 10)
    assert len(ticks) == 2
