"""First heartbeat of a consumer-protocol member after a lost response, and the time for which it owns its
partitions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import pytest

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import Pause, Send, Step
from barnabas.core.errors import CoordinatorNotAvailable
from barnabas.core.ids import Uuid
from barnabas.handlers.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from barnabas.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from barnabas.protocol.schema.message import Message
from tests.chaos.history import History
from tests.simulation.clients import World
from tests.simulation.conduct import Conduct
from tests.simulation.consumer_groups import (
    FASTEST_CLOCK,
    GROUP,
    REBALANCE_TIMEOUT_S,
    SESSION_S,
    Member,
    Owners,
)
from tests.simulation.groups import Commits
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import SimulatedClock
from tests.unit.coordinator.support import Answer, Groups

TOPIC_ID = Uuid(b"topic of readers")
REFUSAL_S = 5.0

Serve = Callable[[ConsumerGroupHeartbeatRequest], ConsumerGroupHeartbeatResponse]


class Answers(ClusterClient):
    """A coordinator that answers heartbeats from a script; it refuses after `REFUSAL_S`."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__([], clock=SimulatedClock(loop), randomness=random.Random(1))
        self._loop = loop
        self.heartbeats: list[ConsumerGroupHeartbeatRequest] = []
        self.to_come: list[Serve] = []

    async def _do(self, step: Step) -> Message | None:
        if isinstance(step, Pause):
            return None
        match step:
            case Send(request=ConsumerGroupHeartbeatRequest() as heartbeat):
                self.heartbeats.append(heartbeat)
                answer = self.to_come.pop(0)(heartbeat)
                if answer.error_code:
                    self._loop.now_s += REFUSAL_S
                return answer
            case Send(request=FindCoordinatorRequest()):
                return FindCoordinatorResponse(coordinators=[Coordinator(key=GROUP, node_id=1)])
            case Send(request=MetadataRequest()):
                return MetadataResponse()
            case Send(request=OffsetFetchRequest()):
                return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=GROUP)])
            case Send(request=OffsetCommitRequest()):
                return OffsetCommitResponse()
        raise AssertionError(step)


def assigned(*partitions: int, epoch: int = 1) -> ConsumerGroupHeartbeatResponse:
    rows = [TopicPartitions(topic_id=TOPIC_ID, partitions=list(partitions))] if partitions else []
    return ConsumerGroupHeartbeatResponse(member_epoch=epoch, assignment=Assignment(topic_partitions=rows))


def nothing_new(epoch: int = 1) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(member_epoch=epoch)


def not_replicated() -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=CoordinatorNotAvailable.code)


class Stage:
    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.cluster = Answers(self.loop)
        self.owners = Owners()
        clock, conduct = SimulatedClock(self.loop), Conduct(self.loop, lambda _: 0)
        world = World(
            self.loop, clock, random.Random(1), [], History(), is_over=lambda: False, conduct=conduct
        )
        self.member = Member(world, "first", "plain", self.cluster, lambda: -math.inf, self.owners, Commits())

    def beat(self, *answers: ConsumerGroupHeartbeatResponse) -> None:
        """One heartbeat, with as many attempts as there are answers."""
        self.beat_and_be_served(*(lambda _, answer=each: answer for each in answers))

    def beat_and_be_served(self, *served: Serve) -> None:
        self.cluster.to_come[:] = served
        self.loop.run_until_complete(self.member.beat())
        assert not self.cluster.to_come

    def is_given_to_another(self, partition: int, at_s: float) -> bool:
        """Whether the judge finds nothing wrong with it."""
        before = len(self.owners.complaints)
        self.owners.taken("second", partition, at_s, at_s + SESSION_S)
        return len(self.owners.complaints) == before


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.loop.close()


def owned(heartbeat: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    if heartbeat.topic_partitions is None:
        return None
    assert all(each.topic_id == TOPIC_ID for each in heartbeat.topic_partitions)
    return [number for each in heartbeat.topic_partitions for number in each.partitions]


def test_after_a_failure_a_member_says_everything_until_it_is_answered(stage: Stage) -> None:
    stage.beat(assigned(0, 1))
    stage.beat(assigned(0, 1))
    stage.beat(nothing_new())
    stage.beat(not_replicated(), not_replicated(), assigned(0, 1))
    stage.beat(nothing_new())
    joined, confirmed, quiet, lost, again, once_more, at_last = stage.cluster.heartbeats
    assert (joined.member_epoch, owned(joined)) == (0, [])
    assert owned(confirmed) == owned(again) == owned(once_more) == [0, 1]
    for full in (joined, confirmed, again, once_more):
        assert full.subscribed_topic_names == ["plain"]
        assert full.rebalance_timeout_ms == 1_000 * REBALANCE_TIMEOUT_S
    for brief in (quiet, lost, at_last):
        assert owned(brief) is None
        assert brief.subscribed_topic_names is None
        assert brief.rebalance_timeout_ms == -1


def test_a_member_hears_that_it_has_to_give_something_up_though_the_answer_was_lost(stage: Stage) -> None:
    """By the broker's own coordinator, whose record is replicated too late for the first answer."""
    groups = Groups()
    groups.topics.put("plain", 2)

    def served(heartbeat: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        response: ConsumerGroupHeartbeatResponse = serve(heartbeat).value
        return response

    def served_too_late(heartbeat: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        groups.log.is_replicated = False
        answer = serve(heartbeat)
        groups.log.time_out()
        groups.log.is_replicated = True
        groups.log.replicate()
        response: ConsumerGroupHeartbeatResponse = answer.value
        return response

    def serve(heartbeat: ConsumerGroupHeartbeatRequest) -> Answer:
        return groups.serve(CONSUMER_GROUP_HEARTBEAT, heartbeat, version=1)

    stage.beat_and_be_served(served)
    stage.beat_and_be_served(served)
    groups.beat("second", 0, group=GROUP, topics=["plain"])
    stage.beat_and_be_served(served_too_late, served)
    stage.beat_and_be_served(served)
    given = groups.beat("second", 2, group=GROUP).assignment
    assert given is not None
    (partition,) = given.topic_partitions[0].partitions
    assert stage.is_given_to_another(partition, stage.loop.now_s)
    assert not stage.is_given_to_another(1 - partition, stage.loop.now_s)


def test_a_session_counts_from_the_attempt_that_was_answered(stage: Stage) -> None:
    stage.beat(assigned(0, 1))
    stage.beat(not_replicated(), not_replicated(), assigned(0, 1))
    answered_s = 2 * REFUSAL_S
    assert not stage.is_given_to_another(0, answered_s + SESSION_S / FASTEST_CLOCK - 0.001)
    assert stage.is_given_to_another(1, answered_s + SESSION_S / FASTEST_CLOCK)


def test_a_member_that_hears_late_has_its_partitions_no_longer_than_a_rebalance_takes(stage: Stage) -> None:
    """The first attempt may have begun it, and when the time is over the member is removed as a whole."""
    stage.beat(assigned(0, 1, 2))
    stage.beat(not_replicated(), not_replicated(), not_replicated(), assigned(0, 1))
    assert stage.loop.now_s < REBALANCE_TIMEOUT_S < stage.loop.now_s + SESSION_S / FASTEST_CLOCK
    assert not stage.is_given_to_another(0, REBALANCE_TIMEOUT_S / FASTEST_CLOCK - 0.001)
    assert stage.is_given_to_another(1, REBALANCE_TIMEOUT_S / FASTEST_CLOCK)


def test_once_it_has_given_up_a_member_has_the_rest_as_long_as_its_session(stage: Stage) -> None:
    stage.beat(assigned(0, 1, 2))
    stage.beat(not_replicated(), not_replicated(), not_replicated(), assigned(0, 1))
    stage.beat(nothing_new())
    assert not stage.is_given_to_another(0, stage.loop.now_s + SESSION_S / FASTEST_CLOCK - 0.001)
