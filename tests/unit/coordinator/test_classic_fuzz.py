"""Members of the classic protocol that do anything, well and badly: no group stays closed to others.

Joins, syncs, heartbeats, departures and commits with fields at their edges are put to one group, by members
that exist and by strangers, static and dynamic, with members of the consumer protocol in between. When all of
them have fallen silent, a member that is new gets in, nothing of the others is kept, and memory equals a
replay of the log.
"""

from __future__ import annotations

import logging
import random

import pytest

from barnabas.coordinator.group.state.settings import MigrationPolicy
from tests.unit.coordinator.support import Answer, Groups
from tests.unit.coordinator.test_consumer_groups import subscription

TIMEOUTS_MS = (-(1 << 31), -2, -1, 0, 1, 50, 300, (1 << 31) - 1)
((_, READABLE),) = subscription("t")
METADATA = (READABLE, b"", b"x", b"\xff\xff")


class Crowd:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        policy = self.random.choice(list(MigrationPolicy))
        self.groups = Groups(
            seed, initial_rebalance_delay_ms=20, min_session_timeout_ms=200, migration_policy=policy
        )
        self.groups.topics.put("t", 3)
        self.joins: list[tuple[Answer, str | None]] = []

    def known(self) -> tuple[str, str | None, int]:
        """Member, instance and generation: of a member, or made up."""
        chance = self.random
        answered = [(each.value, instance) for each, instance in self.joins if each.is_given]
        if answered and chance.random() < 0.7:
            response, instance = chance.choice(answered)
            return response.member_id, instance, response.generation_id
        return chance.choice(("", "nobody")), chance.choice((None, "a", "b")), chance.choice((-1, 0, 1, 2))

    def step(self) -> None:
        chance, groups = self.random, self.groups
        member, instance, generation = self.known()
        what = chance.random()
        if what < 0.45:
            names = chance.choices(("range", "sticky", "zz"), k=chance.choice((0, 1, 1, 2, 3)))
            version = chance.choice((0, 2, 3, 4, 5, 6, 7, 9))
            answer = groups.join(
                member=member,
                instance=instance if version >= 5 else None,
                protocols=tuple((name, chance.choice(METADATA)) for name in names),
                session_ms=chance.choice((200, 300, 600)),
                rebalance_ms=chance.choice(TIMEOUTS_MS[:-1]),
                protocol_type=chance.choice(("consumer",) * 9 + ("connect", "")),
                version=version,
                client=chance.choice(("client", "x" * 32_767, "\ufffd" * 32_767)),
            )
            self.joins.append((answer, instance if version >= 5 else None))
        elif what < 0.65:
            plan = {self.known()[0]: chance.choice((b"", READABLE)) for _ in range(3)}
            groups.sync(member, generation, plan, instance=instance)
        elif what < 0.78:
            groups.heartbeat(member, generation, instance=instance)
        elif what < 0.86:
            groups.leave(member, instance=instance)
        elif what < 0.92:
            groups.commit(5, member=member, generation=generation, version=7)
        elif what < 0.97:
            groups.beat(
                "n", chance.choice((0, 0, 1, 2, -1)), topics=["t"], rebalance_ms=chance.choice(TIMEOUTS_MS)
            )
        else:
            groups.advance(chance.choice((1, 30, 250, 700)))


@pytest.mark.parametrize("seed", range(60))
def test_a_group_is_open_to_others_when_its_members_have_gone(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    crowd = Crowd(seed)
    groups = crowd.groups
    for _ in range(120):
        crowd.step()
    for _ in range(20):
        groups.advance(30_000)
    assert groups.account.kept_bytes == 0
    assert all(answer.is_given for answer, _ in crowd.joins)
    fresh = groups.join(protocols=subscription("t"), version=3)
    groups.advance(100)
    assert fresh.error_code == 0
    member, generation = fresh.value.member_id, fresh.value.generation_id
    assert groups.sync(member, generation, {member: b""}).error_code == 0
    assert Groups(log=groups.log, topics=groups.topics).state() == groups.state() == "Stable"
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
