"""Partition state machine, with the elections that bring partitions online.

An illegal change is logged and left out; the others go on. An election reads the states from the store,
selects leaders, and writes on condition that the states are unchanged. A leader may have shrunk its ISR
meanwhile. States that did change are read and elected again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from barnabas.cluster.znodes.layout import PartitionState
from barnabas.controller.machines import leader_selection
from barnabas.controller.machines.term_parts import TermParts
from barnabas.controller.state.assignments import target_replicas
from barnabas.controller.state.partition_states import PartitionStatus
from barnabas.core.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    KafkaError,
    PreferredLeaderNotAvailable,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting import state_changes
from barnabas.core.reporting.log_text import named
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.reporting.state_changes import numbers

logger = logging.getLogger(__name__)


class Election(Enum):
    """Kind of election, which chooses the selector."""

    OFFLINE = "offline"
    OFFLINE_UNCLEAN = "offline, unclean if need be"
    REASSIGNED = "reassigned"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


class Selection(NamedTuple):
    state: PartitionState
    recipients: Sequence[int]
    """Replicas that receive the LeaderAndIsr."""


Outcome = PartitionState | KafkaError


def written_later(partition: TopicPartition, state: PartitionState) -> UnknownServerError:
    """Error for a state of a later controller, which this one must not change.

    If there is a later controller, the guard of the next write fails. If there is none, only this partition's
    state is malformed.
    """
    return UnknownServerError(f"the state of {partition} is of controller epoch {state.controller_epoch}")


class PartitionMachine:
    def __init__(
        self,
        parts: TermParts,
        is_unclean_by_default: Callable[[], bool],
        metrics: Metrics,
    ) -> None:
        self._context = parts.context
        self._store = parts.store
        self._batch = parts.batch
        self._epoch = parts.epoch
        self._is_unclean_by_default = is_unclean_by_default
        self._elections = metrics.counter(
            "kafka_controller_leader_elections_total", "Leader elections of this controller."
        )
        self._unclean_elections = metrics.counter(
            "kafka_controller_unclean_leader_elections_total",
            "Elections of a leader outside the ISR; records may have been lost.",
        )

    async def startup(self, *, elect_all: bool = False) -> dict[TopicPartition, Outcome]:
        """Take over the partitions as they are, and elect leaders for those without one.

        With `elect_all` the others are elected again too, in a new leader epoch. A crash may have lost
        records that were acknowledged but never synced, and clients that saw them learn it from the epoch.
        """
        context = self._context
        for partition in context.all_partitions():
            state = context.leadership.get(partition)
            if state is None:
                status = PartitionStatus.NEW
            elif context.is_replica_online(state.leader, partition) and not elect_all:
                status = PartitionStatus.ONLINE
            else:
                status = PartitionStatus.OFFLINE
            context.partition_states[partition] = status
        return await self.trigger_online()

    async def trigger_online(self, topics: Collection[str] | None = None) -> dict[TopicPartition, Outcome]:
        """Try to elect a leader for every partition that has none."""
        waiting = (PartitionStatus.NEW, PartitionStatus.OFFLINE)
        context = self._context
        partitions = [
            partition
            for partition, status in context.partition_states.items()
            if status in waiting
            and (topics is None or partition.topic in topics)
            and not context.is_queued_for_deletion(partition.topic)
        ]
        return await self.bring_online(partitions, Election.OFFLINE) if partitions else {}

    def change(self, partitions: Iterable[TopicPartition], target: PartitionStatus) -> None:
        """Make any change except the one to online, which takes an election."""
        assert target is not PartitionStatus.ONLINE
        for partition in self._legal(partitions, target):
            self._log_change(partition, target)
            if target is PartitionStatus.NON_EXISTENT:
                self._context.partition_states.pop(partition, None)
            else:
                self._context.partition_states[partition] = target

    async def bring_online(
        self, partitions: Iterable[TopicPartition], election: Election
    ) -> dict[TopicPartition, Outcome]:
        """Elect a leader for each partition; the outcome is its new state, or the error."""
        legal = self._legal(partitions, PartitionStatus.ONLINE)
        states = self._context.partition_states
        new = [partition for partition in legal if states[partition] is PartitionStatus.NEW]
        outcomes = await self._initialize(new) if new else {}
        others = [partition for partition in legal if partition not in outcomes]
        if others:
            outcomes.update(await self._elect(others, election))
        failed: dict[str, list[TopicPartition]] = {}
        for partition, outcome in outcomes.items():
            if isinstance(outcome, PartitionState):
                self._log_change(partition, PartitionStatus.ONLINE, outcome)
                states[partition] = PartitionStatus.ONLINE
            elif not isinstance(outcome, ElectionNotNeeded):
                failed.setdefault(outcome.protocol_name(), []).append(partition)
        for reason, without in failed.items():
            logger.info(
                "leader election failed for %d partitions (election: %s, %s): %s",
                len(without),
                election.value,
                reason,
                named(without),
            )
        return outcomes

    def _log_change(
        self, partition: TopicPartition, target: PartitionStatus, state: PartitionState | None = None
    ) -> None:
        if state_changes.logger.isEnabledFor(logging.INFO):
            current = self._context.partition_states.get(partition, PartitionStatus.NON_EXISTENT)
            state_changes.logger.info(
                "controller epoch %d: partition %s changes from %s to %s%s",
                self._epoch,
                partition,
                current.value,
                target.value,
                "" if state is None else
                f": leader {state.leader}, leader epoch {state.leader_epoch}, ISR {numbers(state.isr)}",
            )  # fmt: skip

    def _legal(self, partitions: Iterable[TopicPartition], target: PartitionStatus) -> list[TopicPartition]:
        legal = []
        for partition in partitions:
            if self._context.partition_may_become(partition, target):
                legal.append(partition)
            else:
                current = self._context.partition_states.get(partition, PartitionStatus.NON_EXISTENT)
                logger.error(
                    "partition %s is %s and cannot become %s", partition, current.value, target.value
                )
        return legal

    # --- first leader ---

    async def _initialize(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Outcome]:
        outcomes: dict[TopicPartition, Outcome] = {}
        first: dict[TopicPartition, PartitionState] = {}
        for partition in partitions:
            state = leader_selection.first_state(self._context.online_replicas(partition), self._epoch)
            if state is None:
                outcomes[partition] = EligibleLeadersNotAvailable(f"no replica of {partition} is online")
            else:
                first[partition] = state
        created = await self._store.create_states(first)
        for partition, state in created.done.items():
            self._context.leadership[partition] = state
            self._batch.add_leader_and_isr(state.isr, partition, state, is_new=True)
            outcomes[partition] = state
        # A partition that has a state was led before. It is not new, and takes a normal election.
        led = await self._store.read_states(created.stale)
        for partition, state in led.items():
            self._context.leadership[partition] = state
            self._context.partition_states[partition] = PartitionStatus.OFFLINE
        for partition in created.stale:
            if partition not in led:
                outcomes[partition] = UnknownTopicOrPartition(f"the state of {partition} cannot be created")
        return outcomes

    # --- elections ---

    async def _elect(
        self, partitions: Sequence[TopicPartition], election: Election
    ) -> dict[TopicPartition, Outcome]:
        """Elect leaders, from the known states first, because the write is conditional.

        States are read where no replica could be selected that way, or where another writer was first.
        """
        known = self._context.leadership
        states = {partition: known[partition] for partition in partitions if partition in known}
        outcomes = await self._elect_by(states, election)
        remaining = [each for each in partitions if not isinstance(outcomes.get(each), PartitionState)]
        while remaining:
            states = await self._store.read_states(remaining)
            missing = [partition for partition in remaining if partition not in states]
            outcomes.update({each: UnknownTopicOrPartition(f"{each} has no state") for each in missing})
            decided = await self._elect_by(states, election)
            outcomes.update(decided)
            remaining = [partition for partition in states if partition not in decided]
        return outcomes

    async def _elect_by(
        self, states: Mapping[TopicPartition, PartitionState], election: Election
    ) -> dict[TopicPartition, Outcome]:
        """Elect on condition that the states are unchanged; a changed state has no outcome."""
        outcomes: dict[TopicPartition, Outcome] = {}
        selected: dict[TopicPartition, Selection] = {}
        unclean = await self._unclean_topics(states, election)
        for partition, state in states.items():
            if state.controller_epoch > self._epoch:
                outcomes[partition] = written_later(partition, state)
                continue
            chosen = self._select(partition, state, election, unclean=partition.topic in unclean)
            if isinstance(chosen, KafkaError):
                outcomes[partition] = chosen
            else:
                selected[partition] = chosen
        written = await self._store.update_states({each: chosen.state for each, chosen in selected.items()})
        for partition, elected in written.done.items():
            self._elected(partition, states[partition], elected, selected[partition].recipients)
            outcomes[partition] = elected
        if written.done:
            logger.info("elected leaders of %d partitions (election: %s)", len(written.done), election.value)
        return outcomes

    async def _unclean_topics(
        self, states: Mapping[TopicPartition, PartitionState], election: Election
    ) -> set[str]:
        """Topics that need an unclean election and whose settings allow it."""
        if election is not Election.OFFLINE:
            return set()
        context = self._context
        needy = {
            partition.topic
            for partition, state in states.items()
            if not any(context.is_replica_online(replica, partition) for replica in state.isr)
        }
        if not needy:
            return needy
        return await self._store.topics_with_unclean_election(needy, default=self._is_unclean_by_default())

    def _select(
        self, partition: TopicPartition, state: PartitionState, election: Election, *, unclean: bool
    ) -> Selection | KafkaError:
        context = self._context
        assignment = context.assignment(partition)
        replicas = assignment.replicas
        live = context.online_replicas(partition)
        recipients: Sequence[int] = live
        match election:
            case Election.OFFLINE | Election.OFFLINE_UNCLEAN:
                unclean = unclean or election is Election.OFFLINE_UNCLEAN
                chosen = leader_selection.select_offline(replicas, state, live, unclean=unclean)
            case Election.REASSIGNED:
                recipients = target_replicas(assignment)
                chosen = leader_selection.select_reassigned(recipients, state, live)
            case Election.PREFERRED:
                if replicas[:1] == (state.leader,):
                    return ElectionNotNeeded(f"the preferred replica already leads {partition}")
                recipients = replicas
                chosen = leader_selection.select_preferred(replicas, state, live)
                if chosen is None:
                    return PreferredLeaderNotAvailable(f"the preferred replica of {partition} cannot lead")
            case Election.CONTROLLED_SHUTDOWN:
                recipients = context.online_replicas(partition, include_shutting_down=True)
                chosen = leader_selection.select_for_controlled_shutdown(
                    replicas, state, recipients, context.shutting_down_broker_ids
                )
        if chosen is None:
            return EligibleLeadersNotAvailable(f"no replica of {partition} may lead")
        return Selection(chosen._replace(controller_epoch=self._epoch), recipients)

    def _elected(
        self,
        partition: TopicPartition,
        previous: PartitionState,
        elected: PartitionState,
        recipients: Sequence[int],
    ) -> None:
        self._elections.value += 1
        if elected.leader not in previous.isr:
            self._unclean_elections.value += 1
            logger.warning(
                "partition %s: unclean election of leader %d (epoch %d), records may be lost",
                partition,
                elected.leader,
                elected.leader_epoch,
            )
        if elected.leader != previous.leader:
            logger.debug(
                "partition %s: broker %d is elected leader (epoch %d)",
                partition,
                elected.leader,
                elected.leader_epoch,
            )
        self._context.leadership[partition] = elected
        self._batch.add_leader_and_isr(recipients, partition, elected, previous_leader=previous.leader)
