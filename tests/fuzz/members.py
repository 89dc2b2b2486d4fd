"""Members of groups as clients play them: they join, sync, commit, leave and stay silent, turn by turn.

Drawn requests seldom form a group: a generation needs the answers of several members in the right order. Each
member here keeps what its own answers said, and sends what a client would send next. Its timeouts are those
that no client sends: negative, zero or huge. Now and then one field of a request is drawn, too. Between two
turns time passes, so sessions and rebalances run out.
"""

from __future__ import annotations

from random import Random
from typing import Any

from barnabas.core.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.schema.message import Message
from tests.fuzz.pool import Pool
from tests.fuzz.values import Values

SESSIONS_MS = (1, 300, 10_000, 10_000, 1_800_000)
REBALANCES_MS = (10_000, 60_000, 60_000, 0, 0, 1, -2, -(2**31), 2**31 - 1)
SUBSCRIPTION = b"\0\1\0\0\0\1\0\6fuzz-a\xff\xff\xff\xff"
ASSIGNMENT = b"\0\1\0\0\0\1\0\6fuzz-a\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
EDGE = 0.06
"""Share of requests in which one field is drawn like those of any message."""
OUT, JOINED, STABLE = "out", "joined", "stable"

Drawn = tuple[ApiKey, int, Any]


class ClassicMember:
    """JoinGroup v5, SyncGroup v3, Heartbeat v3, LeaveGroup v3."""

    def __init__(self, random: Random, group: str, instance: str | None) -> None:
        self.group = group
        self.instance = instance
        self._state = OUT
        self._member_id = ""
        self._generation = -1
        self._others: list[str] = []
        """Of the generation, if this member leads it."""
        self._renew(random)

    def _renew(self, random: Random) -> None:
        self._session_ms = random.choice(SESSIONS_MS)
        self._rebalance_ms = random.choice(REBALANCES_MS)

    def draw(self, random: Random) -> Drawn | None:
        """The next request; None where the member stays silent."""
        if self._state == OUT:
            return self._join()
        if self._state == JOINED:
            return self._sync() if random.random() < 0.9 else None
        chance = random.random()
        if chance < 0.35:
            return self._heartbeat()
        if chance < 0.5:
            return self._leave(random)
        if chance < 0.65:
            self._renew(random)
            return self._join()
        return None

    def _join(self) -> Drawn:
        message = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            member_id=self._member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        return ApiKey.JOIN_GROUP, 5, message

    def _sync(self) -> Drawn:
        message = SyncGroupRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=ASSIGNMENT) for each in self._others
            ],
        )
        return ApiKey.SYNC_GROUP, 3, message

    def _heartbeat(self) -> Drawn:
        message = HeartbeatRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance,
        )
        return ApiKey.HEARTBEAT, 3, message

    def _leave(self, random: Random) -> Drawn:
        leaving = MemberIdentity(member_id=self._member_id, group_instance_id=self.instance)
        if self.instance is not None and random.random() < 0.3:
            leaving = MemberIdentity(member_id="", group_instance_id=self.instance)
        return ApiKey.LEAVE_GROUP, 3, LeaveGroupRequest(group_id=self.group, members=[leaving])

    def learn(self, key: int, answer: Message) -> None:
        code = getattr(answer, "error_code", 0)
        if key == ApiKey.LEAVE_GROUP or code in (UnknownMemberId.code, FencedInstanceId.code):
            self._state, self._member_id = OUT, ""
        elif code in (IllegalGeneration.code, RebalanceInProgress.code):
            self._state = OUT
        elif key == ApiKey.JOIN_GROUP and code in (0, MemberIdRequired.code):
            self._member_id = answer.member_id  # type: ignore[attr-defined]
            self._state = OUT if code else JOINED
            self._generation = answer.generation_id  # type: ignore[attr-defined]
            self._others = [each.member_id for each in answer.members]  # type: ignore[attr-defined]
        elif key == ApiKey.SYNC_GROUP and code == 0:
            self._state = STABLE


class ConsumerMember:
    """ConsumerGroupHeartbeat v0."""

    def __init__(self, random: Random, group: str, instance: str | None) -> None:
        self.group = group
        self.instance = instance
        self._member_id = ""
        self._epoch = 0
        self._rebalance_ms = random.choice(REBALANCES_MS)

    def draw(self, random: Random) -> Drawn | None:
        chance = random.random()
        epoch = self._epoch
        if epoch > 0 and chance < 0.15:
            epoch = -2 if self.instance is not None and chance < 0.1 else -1
        elif epoch > 0 and chance < 0.5:
            return None
        message = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=self._rebalance_ms,
            subscribed_topic_names=["fuzz-a", "fuzz-b"],
            topic_partitions=[],
        )
        return ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, message

    def learn(self, key: int, answer: Message) -> None:
        assert key == ApiKey.CONSUMER_GROUP_HEARTBEAT
        code: int = answer.error_code  # type: ignore[attr-defined]
        if code in (UnknownMemberId.code, FencedMemberEpoch.code, UnreleasedInstanceId.code):
            self._epoch = 0
        elif code == 0:
            self._member_id = answer.member_id or self._member_id  # type: ignore[attr-defined]
            self._epoch = max(answer.member_epoch, 0)  # type: ignore[attr-defined]


class Cast:
    """The members of a sequence. Each has a connection of its own, since a JoinGroup waits for the others."""

    def __init__(self, random: Random, slots: tuple[int, ...]) -> None:
        group = random.choice(("group-a", "group-b"))
        self._members: dict[int, ClassicMember | ConsumerMember] = {}
        self._waits: set[int] = set()
        kind = ClassicMember if random.random() < 0.75 else ConsumerMember
        for number, slot in enumerate(slots):
            instance = f"static-{number}" if random.random() < 0.7 else None
            self._members[slot] = kind(random, group if kind is ClassicMember else "group-d", instance)

    def draw(self, random: Random, pool: Pool) -> list[tuple[int, Drawn]]:
        """Requests of the members of one turn, by their slots: some, in any order, that wait for no
        response."""
        found: list[tuple[int, Drawn]] = []
        free = [slot for slot in self._members if slot not in self._waits]
        for slot in random.sample(free, random.randint(0, len(free))):
            drawn = self._members[slot].draw(random)
            if drawn is not None:
                found.append((slot, self._at_an_edge(random, pool, drawn)))
                self._waits.add(slot)
        return found

    @staticmethod
    def _at_an_edge(random: Random, pool: Pool, drawn: Drawn) -> Drawn:
        key, version, message = drawn
        if random.random() < EDGE:
            fields = [field for field in message.__schema__.fields if version in field.versions]
            chosen = random.choice(fields)
            setattr(message, chosen.name, Values(random, pool)._of_field(chosen, version, 1))
        return key, version, message

    def answered(self, slot: int, key: int, answer: Message | None) -> None:
        if slot in self._members and slot in self._waits:
            self._waits.discard(slot)
            if answer is not None:
                self._members[slot].learn(key, answer)

    def closed(self, slot: int) -> None:
        self._waits.discard(slot)
