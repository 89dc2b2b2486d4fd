"""Memory equals a replay of the log, and of the compacted log, after any history.

Random operations of both protocols, with time passing, members dying and transactions ending, are put to
a coordinator. Then its state is compared with that of a coordinator that has only read the log.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.group.state.classic_group import ClassicGroup, GroupState
from barnabas.coordinator.group.state.consumer_group import ConsumerGroup
from barnabas.coordinator.group.state.settings import MigrationPolicy
from barnabas.core.errors import NotEnoughReplicas
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import build_batch
from barnabas.records.record import iterate_records
from tests.unit.coordinator.support import Groups, MemoryLog
from tests.unit.coordinator.test_consumer_groups import subscription
from tests.unit.coordinator.test_offsets import delete, end, stage

GROUPS = ("g", "h", "k")
FAILED_WRITES = 0.1
SETTINGS: dict[str, Any] = {
    "migration_policy": MigrationPolicy.BIDIRECTIONAL,
    "offsets_retention_ms": 120_000,
    "offsets_retention_check_interval_ms": 20_000,
    "initial_rebalance_delay_ms": 1_000,
}


class Story:
    """A coordinator and what its members believe; `step` does one random thing."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.groups = Groups(seed, **SETTINGS)
        self.groups.topics.put("t", 4)
        self.open_producers: set[int] = set()
        self.names = 0

    def step(self) -> None:
        what = self.random.choice(
            [
                self.join_classic,
                self.rejoin_classic,
                self.sync_classic,
                self.leave_classic,
                self.join_consumer,
                self.join_static,
                self.beat,
                self.beat,
                self.leave_consumer,
                self.commit,
                self.commit,
                self.stage,
                self.end,
                self.delete,
                self.change_topics,
                self.pass_time,
                self.pass_time,
            ]
        )
        if self.random.random() < FAILED_WRITES:
            self.groups.log.error = NotEnoughReplicas("too few")
        what(self.random.choice(GROUPS))
        self.groups.log.error = None
        self.check_owners()

    def classic(self, group: str) -> ClassicGroup | None:
        return self.groups.shard.registry.find_classic(group)

    def consumer(self, group: str) -> ConsumerGroup | None:
        return self.groups.shard.registry.find_consumer(group)

    def some(self, members: Any) -> Any:
        return self.random.choice(list(members)) if members else None

    # Classic members

    def join_classic(self, group: str) -> None:
        how: dict[str, Any] = {"protocols": subscription("t"), "session_ms": 30_000, "rebalance_ms": 20_000}
        if self.random.random() < 0.3:
            self.groups.join(group, instance=f"i{self.random.randrange(2)}", **how)
            return
        asked = self.groups.join(group, **how)
        if asked.is_given and asked.value.member_id and self.random.random() < 0.8:
            self.groups.join(group, asked.value.member_id, **how)

    def rejoin_classic(self, group: str) -> None:
        found: Any = self.classic(group) or self.consumer(group)
        member = self.some(found.members.values()) if found is not None else None
        if member is None:
            return
        instance = member.group_instance_id if isinstance(found, ClassicGroup) else member.instance_id
        self.groups.join(
            group,
            member.member_id,
            instance=instance,
            protocols=subscription("t"),
            session_ms=30_000,
            rebalance_ms=20_000,
        )

    def sync_classic(self, group: str) -> None:
        found: Any = self.classic(group) or self.consumer(group)
        if found is None:
            return
        if isinstance(found, ConsumerGroup):
            for member in found.classic_members:
                self.groups.sync(
                    member.member_id, member.member_epoch, group=group, instance=member.instance_id
                )
            return
        for member in list(found.members.values()):
            self.groups.sync(
                member.member_id,
                found.generation_id,
                {name: name.encode() for name in found.members},
                group=group,
                instance=member.group_instance_id,
            )

    def leave_classic(self, group: str) -> None:
        found: Any = self.classic(group) or self.consumer(group)
        member = self.some(found.members) if found is not None else None
        if member is not None:
            self.groups.leave(member, group=group)

    # Members of the consumer protocol

    def join_consumer(self, group: str) -> None:
        self.names += 1
        regex = "t|u" if self.random.random() < 0.3 else None
        self.groups.beat(f"m{self.names}", 0, group=group, topics=["t"] if regex is None else [], regex=regex)

    def join_static(self, group: str) -> None:
        self.names += 1
        instance = f"i{self.random.randrange(2)}"
        self.groups.beat(f"m{self.names}", 0, group=group, topics=["t", "u"], instance=instance)

    def beat(self, group: str) -> None:
        found = self.consumer(group)
        for member in list(found.members.values()) if found is not None else ():
            if member.member_epoch >= 0 and not member.is_classic:
                owned = {topic: sorted(numbers) for topic, numbers in member.assigned.items()}
                self.groups.beat(
                    member.member_id,
                    member.member_epoch,
                    group=group,
                    owned=owned,
                    instance=member.instance_id,
                )

    def leave_consumer(self, group: str) -> None:
        found = self.consumer(group)
        member = self.some(found.members.values()) if found is not None else None
        if member is not None:
            epoch = -2 if member.instance_id is not None and self.random.random() < 0.7 else -1
            self.groups.beat(member.member_id, epoch, group=group, instance=member.instance_id)

    # Offsets

    def commit(self, group: str) -> None:
        found: Any = self.classic(group) or self.consumer(group)
        member = self.some(found.members.values()) if found is not None else None
        where: dict[str, Any] = {"topic": self.random.choice("tu"), "partition": self.random.randrange(3)}
        if member is None:
            self.groups.commit(self.random.randrange(100), group=group, **where)
            return
        generation = found.generation_id if isinstance(found, ClassicGroup) else member.member_epoch
        self.groups.commit(
            self.random.randrange(100), group=group, member=member.member_id, generation=generation, **where
        )

    def stage(self, group: str) -> None:
        producer = self.random.randrange(3)
        if stage(self.groups, producer, self.random.randrange(100), group=group) == 0:
            self.open_producers.add(producer)

    def end(self, group: str) -> None:
        if self.open_producers and self.groups.log.error is None:
            producer = self.some(self.open_producers)
            self.open_producers.discard(producer)
            end(self.groups, producer, commit=self.random.random() < 0.6)

    def delete(self, group: str) -> None:
        delete(self.groups, self.random.choice("tu"), group)

    def change_topics(self, group: str) -> None:
        if self.groups.topics.topic("u") is None:
            self.groups.topics.put("u", 2)
        elif self.random.random() < 0.5:
            self.groups.delete_topic("u")
        else:
            self.groups.topics.put("t", self.random.randrange(1, 9))

    def pass_time(self, group: str) -> None:
        self.groups.advance(self.random.choice([100, 5_000, 50_000]))

    def check_owners(self) -> None:
        """One owner per partition: no member has a partition that another has, or has yet to revoke."""
        for group in self.groups.shard.groups.values():
            if isinstance(group, ConsumerGroup):
                held = [
                    (topic, number)
                    for member in group.members.values()
                    for assignment in (member.assigned, member.pending_revocation)
                    for topic, numbers in assignment.items()
                    for number in numbers
                ]
                assert len(held) == len(set(held))
                assert set(held) == group.owners.keys()


def durable(shard: GroupShard) -> dict[str, Any]:
    """State of a shard that a replay must restore. Of a classic group that is rebalancing, or that exists by
    its offsets only, that is its existence."""
    groups: dict[str, Any] = {}
    for name, group in shard.groups.items():
        if isinstance(group, ConsumerGroup):
            soft = ("seen_generation", "regexes_seen")
            groups[name] = {key: value for key, value in vars(group).items() if key not in soft}
        elif group.state in (GroupState.STABLE, GroupState.EMPTY) and not group.exists_by_offsets:
            value: Any = group.record().value
            members = [
                (each.member_id, each.group_instance_id, each.subscription, each.assignment)
                for each in value.members
            ]
            groups[name] = (value.generation, value.protocol, value.leader, sorted(members))
        else:
            groups[name] = "classic"
    return {
        "groups": groups,
        "committed": shard.offsets.committed,
        "pending": {key: value for key, value in shard.offsets.pending.items() if value},
    }


def as_known_after(live: dict[str, Any], replayed: dict[str, Any]) -> dict[str, Any]:
    """A classic group that is rebalancing may be known in its last complete generation."""
    groups = {
        name: replayed["groups"].get(name) if group == "classic" else group
        for name, group in live["groups"].items()
    }
    return {**live, "groups": groups}


def replayed(log: MemoryLog) -> GroupShard:
    return Groups(log=log, **SETTINGS).shard


def compacted(log: MemoryLog) -> MemoryLog:
    """Only the last record of each key, at the offset that it had."""
    last: dict[bytes, int] = {}
    for batch in log.batches:
        for record in iterate_records(RecordBatch(batch)):
            assert record.key is not None
            last[record.key] = record.offset
    result = MemoryLog()
    for batch in log.batches:
        for record in iterate_records(RecordBatch(batch)):
            assert record.key is not None
            if last[record.key] == record.offset:
                kept = build_batch([(record.key, record.value, (), 0)], base_offset=record.offset)
                result.batches.append(kept)
    result.log_end_offset = log.log_end_offset
    result.high_watermark = log.high_watermark
    return result


@given(st.integers(0, 1_000_000))
@settings(max_examples=60, deadline=None)
def test_memory_equals_a_replay_of_the_log(seed: int) -> None:
    story = Story(seed)
    for _ in range(60):
        story.step()
    live = durable(story.groups.shard)
    again = durable(replayed(story.groups.log))
    assert as_known_after(live, again) == again


@given(st.integers(0, 1_000_000))
@settings(max_examples=40, deadline=None)
def test_memory_equals_a_replay_of_the_compacted_log(seed: int) -> None:
    story = Story(seed)
    story.stage = lambda group: None  # type: ignore[method-assign]
    for _ in range(60):
        story.step()
    live = durable(story.groups.shard)
    again = durable(replayed(compacted(story.groups.log)))
    assert as_known_after(live, again) == again


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_in_the_middle_changes_nothing_that_follows(seed: int) -> None:
    """Two coordinators, one of which was replaced halfway, agree on the owners in the end."""
    story = Story(seed)
    for number in range(4):
        story.groups.beat(f"x{number}", 0, group="g", topics=["t"])
    held = story.groups.settle("g")
    after = Groups(log=story.groups.log, topics=story.groups.topics, **SETTINGS)
    assert after.settle("g") == held
