"""Invariants that hold at every moment, checked while the run goes on.

A check sees all brokers at one moment, between two callbacks, which no client and no broker can:
- the high watermark of a leader never goes back in one epoch, and no in-sync replica ends below it;
- log start ≤ last stable offset ≤ high watermark ≤ log end;
- an epoch of a partition has one leader;
- replicas are equal below the high watermark, byte for byte;
- once nothing has been broken for a while, no transaction holds a last stable offset back.

A replica that has lost unsynced records (or all records) is behind until it has caught up or has left the
ISR. The invariants of in-sync replicas do not apply to it before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from barnabas.core.ids import TopicPartition, Uuid
from barnabas.replication.partition.partition import Partition
from tests.simulation.authority import Authority
from tests.simulation.judge import batches, describe
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import Machine
from tests.simulation.trace import Trace

LOOK_S = (0.05, 0.4)
COMPARE_EVERY = 20
"""Looks until the replicas of one more partition are compared."""
HANGING_S = 45.0
"""The timeout of a transaction, the pause between two sweeps, and 10 s; and a cluster that has just been
mended needs a while to be one again."""


class Led(NamedTuple):
    life: int
    topic_id: Uuid
    leader_epoch: int
    high_watermark: int


class Watch:
    def __init__(
        self,
        loop: SimulatedLoop,
        chance: random.Random,
        trace: Trace,
        machines: Sequence[Machine],
        alike: Collection[str],
        calm_since_s: Callable[[], float],
    ) -> None:
        """`alike` are the topics whose replicas are to be alike; `calm_since_s` is when something was last
        broken."""
        self.complaints: list[str] = []
        self.on_complaint: Callable[[], object] = lambda: None
        self.looks = 0
        self._loop = loop
        self._chance = chance
        self._trace = trace
        self._machines = machines
        self._authority = Authority(machines[0].store)
        self._alike = alike
        self._calm_since_s = calm_since_s
        self._leaders: dict[tuple[TopicPartition, Uuid, int], int] = {}
        self._led: dict[tuple[int, TopicPartition], Led] = {}
        self._whole: dict[tuple[int, TopicPartition], int] = {}
        """Number of losses of its machine when a replica was last known to be whole."""
        self._ends: dict[tuple[int, TopicPartition], tuple[int, Uuid, int]] = {}
        self._held_back: dict[TopicPartition, tuple[int, float]] = {}
        """Last stable offsets that are not at the high watermark, and since when."""

    def begin(self) -> None:
        self._loop.later(self._chance.uniform(*LOOK_S), self._look_again)

    def _look_again(self) -> None:
        self.look()
        self.begin()

    def look(self) -> None:
        self.looks += 1
        every = {machine: machine.partitions for machine in self._machines}
        for machine, partitions in every.items():
            for place, partition in partitions.items():
                for complaint in self._about(machine, place, partition, every):
                    self._complain(f"{complaint}, at {self._loop.now_s:.3f} s")
        for complaint in self._authority.look(every, self._loop.now_s):
            self._complain(f"{complaint}, at {self._loop.now_s:.3f} s")
        if self.looks % COMPARE_EVERY == 0:
            places = sorted(
                {place for each in every.values() for place in each if place.topic in self._alike}
            )
            if places:
                self._compare(self._chance.choice(places), every)

    def _complain(self, complaint: str) -> None:
        if len(self.complaints) < 20:
            self.complaints.append(complaint)
        self.on_complaint()

    def _about(
        self,
        machine: Machine,
        place: TopicPartition,
        partition: Partition,
        every: dict[Machine, dict[TopicPartition, Partition]],
    ) -> Iterator[str]:
        log, leadership = partition.log, partition.leadership
        high_watermark = log.high_watermark
        if not log.log_start_offset <= log.last_stable_offset <= high_watermark <= log.log_end_offset:
            yield (
                f"watermarks out of order: {place} on {machine} starts at {log.log_start_offset}, is stable"
                f" to {log.last_stable_offset}, committed to {high_watermark}, ends at {log.log_end_offset}"
            )
        self._tell_of_losses(machine, place, partition)
        if not leadership.is_leader:
            self._led.pop((machine.number, place), None)
            return
        epoch = leadership.leader_epoch
        first = self._leaders.setdefault((place, partition.topic_id, epoch), machine.number)
        if first != machine.number:
            yield f"two leaders: brokers {first} and {machine.number} lead {place} in epoch {epoch}"
        before = self._led.get((machine.number, place))
        now = Led(machine.lives, partition.topic_id, epoch, high_watermark)
        if before is None or before[:3] != now[:3]:
            self._trace.tell(
                f"{machine} leads {place} in epoch {epoch}: it has everything below {log.log_end_offset}, and"
                f" knows that what is below {high_watermark} is committed"
            )
        elif high_watermark < before.high_watermark:
            yield (
                f"high watermark went back: {place} on {machine}, in epoch {epoch}, from"
                f" {before.high_watermark} to {high_watermark}"
            )
        self._led[machine.number, place] = now
        yield from self._about_followers(machine, place, partition, every)
        yield from self._about_transactions(machine, place, partition)

    def _tell_of_losses(self, machine: Machine, place: TopicPartition, partition: Partition) -> None:
        key, end_offset = (machine.number, place), partition.log.log_end_offset
        life, topic_id, before = self._ends.get(key, (0, partition.topic_id, 0))
        if topic_id == partition.topic_id and end_offset < before:
            how = "is without" if life == machine.lives else "has come back without"
            self._trace.tell(f"{machine} {how} what it had of {place} from {end_offset} to {before - 1}")
        self._ends[key] = (machine.lives, partition.topic_id, end_offset)

    def _about_followers(
        self,
        machine: Machine,
        place: TopicPartition,
        partition: Partition,
        every: dict[Machine, dict[TopicPartition, Partition]],
    ) -> Iterator[str]:
        leadership, high_watermark = partition.leadership, partition.log.high_watermark
        for other, theirs in every.items():
            replica = theirs.get(place)
            if other is machine or replica is None or replica.topic_id != partition.topic_id:
                continue
            end_offset = replica.log.log_end_offset
            if other.number not in leadership.isr or end_offset >= high_watermark:
                self._whole[other.number, place] = other.losses
            elif (
                replica.leadership.leader_epoch == leadership.leader_epoch
                and self._whole.get((other.number, place), 0) == other.losses
            ):
                yield (
                    f"not committed: {place} ends at {end_offset} on {other}, which is in sync, and {machine}"
                    f" has the high watermark {high_watermark}"
                )

    def _about_transactions(
        self, machine: Machine, place: TopicPartition, partition: Partition
    ) -> Iterator[str]:
        stable_offset = partition.log.last_stable_offset
        if stable_offset == partition.log.high_watermark:
            self._held_back.pop(place, None)
            return
        known = self._held_back.get(place)
        if known is None or known[0] != stable_offset:
            known = self._held_back[place] = (stable_offset, self._loop.now_s)
        since_s = max(known[1], self._calm_since_s())
        if self._loop.now_s - since_s > HANGING_S:
            yield f"hanging transaction: {place} on {machine} is stable to {stable_offset}, no further"

    def _compare(self, place: TopicPartition, every: dict[Machine, dict[TopicPartition, Partition]]) -> None:
        """Below the lower of two high watermarks, from the higher of two starts on."""
        found = [
            (machine, theirs[place], batches(machine.files, *place))
            for machine, theirs in every.items()
            if place in theirs and not machine.is_damaged
        ]
        for machine, partition, log in found[1:]:
            first, reference, other = found[0]
            if partition.topic_id != reference.topic_id:
                continue
            logs = (partition.log, reference.log)
            start = max(each.log_start_offset for each in logs)
            end = min(each.high_watermark for each in logs)
            for offset in sorted(log.keys() | other.keys()):
                if start <= offset < end and log.get(offset) != other.get(offset):
                    self._complain(
                        f"replicas differ below the high watermark: {place}@{offset} is"
                        f" {describe(other.get(offset))} on {first} and {describe(log.get(offset))} on"
                        f" {machine}, at {self._loop.now_s:.3f} s"
                    )
                    return
