"""State changes of partitions, with the elections that bring them online.

An illegal change is logged and left out; the others go on. An election reads the states from the
store, selects, and writes on condition that nothing changed meanwhile (a leader may have shrunk its
ISR): those that did change are read and elected again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from barnabas.cluster.znodes import PartitionState
from barnabas.controller import leader_selection
from barnabas.controller.assignments import target_replicas
from barnabas.controller.context import ControllerContext
from barnabas.controller.partition_states import PartitionStatus
from barnabas.controller.request_batch import RequestBatch
from barnabas.controller.store import ControllerStore
from barnabas.core.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    KafkaError,
    PreferredLeaderNotAvailable,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import TopicPartition
from barnabas.core.metrics import Metrics

logger = logging.getLogger(__name__)


class Election(Enum):
    """Which of the selectors decides."""

    OFFLINE = "offline"
    OFFLINE_UNCLEAN = "offline, unclean if need be"
    REASSIGNED = "reassigned"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


class Selection(NamedTuple):
    state: PartitionState
    recipients: Sequence[int]
    """The replicas that are told."""


Outcome = PartitionState | KafkaError


def written_later(partition: TopicPartition, state: PartitionState) -> UnknownServerError:
    """A state that is not this controller's to change. If there is a later controller, the guard of the
    next write tells; if there is none, this partition alone is spoilt."""
    return UnknownServerError(f"the state of {partition} is of controller epoch {state.controller_epoch}")


class PartitionMachine:
    def __init__(
        self,
        context: ControllerContext,
        store: ControllerStore,
        batch: RequestBatch,
        controller_epoch: int,
        is_unclean_by_default: Callable[[], bool],
        metrics: Metrics,
    ) -> None:
        self._context = context
        self._store = store
        self._batch = batch
        self._epoch = controller_epoch
        self._is_unclean_by_default = is_unclean_by_default
        self._elections = metrics.counter(
            "kafka_controller_leader_elections_total", "Leaders that this controller elected."
        )
        self._unclean_elections = metrics.counter(
            "kafka_controller_unclean_leader_elections_total",
            "Leaders elected from outside the ISR: records may have been lost.",
        )

    async def startup(self, *, elect_all: bool = False) -> dict[TopicPartition, Outcome]:
        """Take over the partitions as they are, and find leaders for those that have none.

        With `elect_all` those that have one are elected again, in a new leader epoch: a crash may have lost
        records that were acknowledged but never synced, and the epoch tells clients that saw them."""
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
        """Try to find a leader for every partition that has none."""
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
        """Every change but the one to online, which takes an election."""
        assert target is not PartitionStatus.ONLINE
        for partition in self._legal(partitions, target):
            if target is PartitionStatus.NON_EXISTENT:
                self._context.partition_states.pop(partition, None)
            else:
                self._context.partition_states[partition] = target

    async def bring_online(
        self, partitions: Iterable[TopicPartition], election: Election
    ) -> dict[TopicPartition, Outcome]:
        """Elect a leader for each; the outcome is its new state, or why there is none."""
        legal = self._legal(partitions, PartitionStatus.ONLINE)
        states = self._context.partition_states
        new = [partition for partition in legal if states[partition] is PartitionStatus.NEW]
        outcomes = await self._initialize(new) if new else {}
        others = [partition for partition in legal if partition not in outcomes]
        if others:
            outcomes.update(await self._elect(others, election))
        for partition, outcome in outcomes.items():
            if isinstance(outcome, PartitionState):
                states[partition] = PartitionStatus.ONLINE
            else:
                logger.info("%s gets no leader (%s): %s", partition, election.value, outcome.message)
        return outcomes

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

    # The first leader

    async def _initialize(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Outcome]:
        outcomes: dict[TopicPartition, Outcome] = {}
        first: dict[TopicPartition, PartitionState] = {}
        for partition in partitions:
            state = leader_selection.first_state(self._context.online_replicas(partition), self._epoch)
            if state is None:
                outcomes[partition] = EligibleLeadersNotAvailable(f"no replica of {partition} is alive")
            else:
                first[partition] = state
        created = await self._store.create_states(first)
        for partition, state in created.done.items():
            self._context.leadership[partition] = state
            self._batch.add_leader_and_isr(state.isr, partition, state, is_new=True)
            outcomes[partition] = state
        # One that has a state after all was led before; it is not new, and the election is like any other.
        led = await self._store.read_states(created.stale)
        for partition, state in led.items():
            self._context.leadership[partition] = state
            self._context.partition_states[partition] = PartitionStatus.OFFLINE
        for partition in created.stale:
            if partition not in led:
                outcomes[partition] = UnknownTopicOrPartition(f"the state of {partition} cannot be created")
        return outcomes

    # Elections

    async def _elect(
        self, partitions: Sequence[TopicPartition], election: Election
    ) -> dict[TopicPartition, Outcome]:
        """Select by what is known, since the write is conditional; read where nobody could be selected
        that way, or where somebody else has written meanwhile."""
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
        """Elect on condition that the states are these; one that is not has no outcome."""
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
            logger.info("leaders of %d partitions are elected (%s)", len(written.done), election.value)
        return outcomes

    async def _unclean_topics(
        self, states: Mapping[TopicPartition, PartitionState], election: Election
    ) -> set[str]:
        """Topics whose settings allow an unclean election, of those that would need one."""
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
                    return ElectionNotNeeded(f"{partition} is led by its preferred replica")
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
        former: PartitionState,
        elected: PartitionState,
        recipients: Sequence[int],
    ) -> None:
        self._elections.value += 1
        if elected.leader not in former.isr:
            self._unclean_elections.value += 1
            logger.warning(
                "broker %d leads %s though it was not in sync: records may be lost", elected.leader, partition
            )
        if elected.leader != former.leader:
            logger.debug("broker %d leads %s in epoch %d", elected.leader, partition, elected.leader_epoch)
        self._context.leadership[partition] = elected
        self._batch.add_leader_and_isr(recipients, partition, elected, former_leader=former.leader)
