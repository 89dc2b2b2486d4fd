"""LeaderAndIsr and StopReplica as a broker carries them out: lead, follow or stop replicas.

A request may come late, twice, or from a controller that has been replaced. Three epochs detect this, and a
lower one is always refused. The controller epoch counts for a whole request. The broker epoch tells requests
for an earlier registration of this broker (`ReplicaManager.check_controller`). The leader epoch counts for
each partition.

Creating thousands of logs takes long, so a request is carried out in slices, and other work has a turn
between two slices (`defer`). One request is carried out completely before the next begins.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from barnabas.core.errors import (
    NONE,
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    StaleControllerEpoch,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import NO_EPOCH, ZERO_UUID, BrokerId, TopicPartition, Uuid
from barnabas.core.reporting import state_changes
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.reporting.log_text import named
from barnabas.core.reporting.state_changes import numbers
from barnabas.core.steps import Sliced, advance
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from barnabas.replication.follower.fetcher_manager import FetcherManager
from barnabas.replication.leader.delayed_requests import Defer
from barnabas.replication.local_replicas import LocalReplicas
from barnabas.replication.partition.leadership import LeaderAndIsr
from barnabas.replication.partition.partition import Partition
from barnabas.replication.partition.replica_table import ReplicaTable
from barnabas.storage.files.failures import Reach, reach_of

logger = logging.getLogger(__name__)

FULL_LIST = 2
"""The `type` of a LeaderAndIsr request that names every partition of this broker."""

DELETING_EPOCH = -2

PARTITIONS_PER_SLICE = 16

"""Partitions that one log line names; a debug line names each."""

Failed = Callable[[Exception], None]

_PartitionOrder = tuple[TopicPartition, Uuid, LeaderAndIsrPartitionState, LeaderAndIsrPartitionError]


class _Order(NamedTuple):
    slices: Sliced[Any]
    done: Callable[[Any], None]
    failed: Failed


class ControllerOrders:
    def __init__(
        self,
        broker_id: BrokerId,
        table: ReplicaTable,
        replicas: LocalReplicas,
        fetchers: FetcherManager,
        defer: Defer,
    ) -> None:
        self._broker_id = broker_id
        self._table = table
        self._replicas = replicas
        self._fetchers = fetchers
        self._defer = defer
        self._orders: deque[_Order] = deque()
        self.controller_epoch = 0

    def check_controller_epoch(self, epoch: int) -> None:
        """Refuse the epoch of a replaced controller; remember the newest."""
        if epoch < self.controller_epoch:
            raise StaleControllerEpoch(
                f"controller epoch {epoch} is below the current epoch {self.controller_epoch}"
            )
        self.controller_epoch = epoch

    def close(self) -> None:
        """Drop the requests in progress without answers: the connections are closing."""
        while self._orders:
            self._orders.popleft().slices.close()

    def _carry_out(self, order: _Order) -> None:
        self._orders.append(order)
        if len(self._orders) == 1:
            self._take_turn()

    def _take_turn(self) -> None:
        """Carry out one slice of the first request."""
        if not self._orders:
            return
        order = self._orders[0]
        answer: Callable[[], None] | None = None
        try:
            ended = advance(order.slices)
            if ended is not None:
                answer = partial(order.done, ended.result)
        except Exception as error:  # noqa: BLE001 - the controller receives it
            answer = partial(order.failed, error)
        if answer is not None:
            self._orders.popleft()
        # Before the answer: an answer that fails must not hold up the requests behind it.
        if self._orders:
            self._defer(self._take_turn)
        if answer is not None:
            with sweeping("the response to the controller"):
                answer()

    # --- LeaderAndIsr ---

    def lead_and_follow(
        self, request: LeaderAndIsrRequest, done: Callable[[LeaderAndIsrResponse], None], failed: Failed
    ) -> None:
        """Carry out LeaderAndIsr; the response has the form of v5 and later."""
        self._carry_out(_Order(self._lead_and_follow(request), done, failed))

    def _lead_and_follow(self, request: LeaderAndIsrRequest) -> Sliced[LeaderAndIsrResponse]:
        try:
            self.check_controller_epoch(request.controller_epoch)
        except StaleControllerEpoch as error:
            return LeaderAndIsrResponse(error_code=error.code)
        response = LeaderAndIsrResponse(topics=[])
        by_topic: dict[str, LeaderAndIsrTopicError] = {}
        orders: list[_PartitionOrder] = []
        for topic, topic_id, state in _partition_states(request):
            key = TopicPartition(topic, state.partition_index)
            outcome = LeaderAndIsrPartitionError(topic_name=topic, partition_index=state.partition_index)
            if topic not in by_topic:
                by_topic[topic] = LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=[])
                response.topics.append(by_topic[topic])
            by_topic[topic].partition_errors.append(outcome)
            orders.append((key, topic_id, state, outcome))
        if request.type == FULL_LIST:
            self._replicas.set_aside_strays({key: topic_id for key, topic_id, *_ in orders})
        ignored: list[TopicPartition] = []
        refused = yield from self._apply_all(orders, request.broker_epoch, ignored)
        self._fetchers.close_idle()
        if ignored:
            state_changes.logger.info(
                "LeaderAndIsr of controller %d (epoch %d): ignored for %d of %d partitions, because its"
                " leader epoch is not newer than the current leader epoch: %s",
                request.controller_id,
                request.controller_epoch,
                len(ignored),
                len(orders),
                named(ignored),
            )
        if refused:
            # KAFKA_STORAGE_ERROR for a replica means a failed disk: only a restart brings it back. For the
            # whole request it means a retry, which does not repeat the finished partitions.
            return LeaderAndIsrResponse(error_code=KafkaStorageError.code)
        return response

    def _apply_all(
        self, orders: list[_PartitionOrder], broker_epoch: int, ignored: list[TopicPartition]
    ) -> Sliced[list[LeaderAndIsrPartitionError]]:
        """Apply partition states: first those this broker leads, then the followers, whose fetchers start
        last. The other brokers have the same request, and a broker must refuse fetches until it leads.

        Returns the partitions that failed for a reason that passes: no file descriptor was free. `ignored`
        gets the partitions whose state is stale.
        """
        refused: list[LeaderAndIsrPartitionError] = []
        me = self._broker_id
        to_follow: list[tuple[Partition, LeaderAndIsrPartitionError]] = []
        ordered = sorted(orders, key=lambda order: order[2].leader != me)
        for count, (key, topic_id, state, outcome) in enumerate(ordered, 1):
            with _errors_in(outcome, key, state.leader_epoch, refused):
                try:
                    partition = self._lead_or_follow(key, topic_id, state, broker_epoch)
                except StaleControllerEpoch as error:
                    # A new or restarted controller sends every state again, so one request has many of them.
                    logger.debug("partition %s: LeaderAndIsr is ignored: %s", key, error.message)
                    outcome.error_code = error.code
                    ignored.append(key)
                    partition = None
                if partition is not None:
                    to_follow.append((partition, outcome))
            if count % PARTITIONS_PER_SLICE == 0:
                yield
        for count, (partition, outcome) in enumerate(to_follow, 1):
            epoch = partition.leadership.leader_epoch
            with _errors_in(outcome, partition.topic_partition, epoch, refused):
                if partition.log.log_directory.failure is not None:
                    raise KafkaStorageError(f"the log directory of {partition.topic_partition} is offline")
                self._fetchers.follow(partition)
            if count % PARTITIONS_PER_SLICE == 0:
                yield
        return refused

    def _lead_or_follow(
        self, key: TopicPartition, topic_id: Uuid, state: LeaderAndIsrPartitionState, broker_epoch: int
    ) -> Partition | None:
        """Returns the partition if it follows another leader, or another epoch, than before."""
        known = self._table.find(key)
        if known is not None:
            leadership = known.leadership
            if leadership.is_leader and leadership.leader_epoch == state.leader_epoch:
                # The request confirms the leadership under this broker epoch, even without any other change.
                leadership.confirm(broker_epoch)
            _check_order(leadership.leader_epoch, leadership.partition_epoch, state)
            if topic_id != ZERO_UUID and known.topic_id not in (topic_id, ZERO_UUID):
                raise InconsistentTopicId(f"{key} has the topic id {known.topic_id}, not {topic_id}")
            if known.log.log_directory.failure is not None:
                raise KafkaStorageError(f"the log directory of {key} is offline")
        if self._broker_id not in state.replicas:
            raise UnknownTopicOrPartition(f"broker {self._broker_id} is not a replica of {key}")
        partition = self._replicas.get_or_create(key, topic_id, is_new=state.is_new)
        ordered = LeaderAndIsr(
            leader=BrokerId(state.leader),
            leader_epoch=state.leader_epoch,
            replicas=tuple(map(BrokerId, state.replicas)),
            isr=map(BrokerId, state.isr),
            partition_epoch=state.partition_epoch,
            controller_epoch=state.controller_epoch,
            adding_replicas=map(BrokerId, state.adding_replicas),
            removing_replicas=map(BrokerId, state.removing_replicas),
        )
        if state.leader == self._broker_id:
            self._fetchers.unfollow(key)
            is_new = partition.become_leader(ordered)
            self._log_change(key, "becomes the leader", state)
            partition.leadership.confirm(broker_epoch)
            self._replicas.elected(partition, is_new=is_new)
            return None
        if not partition.become_follower(ordered):
            return None
        self._log_change(key, f"becomes a follower of {state.leader}", state)
        self._fetchers.unfollow(key)
        self._replicas.resigned(partition)
        return partition

    def _log_change(self, key: TopicPartition, change: str, state: LeaderAndIsrPartitionState) -> None:
        if state_changes.logger.isEnabledFor(logging.INFO):
            state_changes.logger.info(
                "broker %d: partition %s %s: leader epoch %d, partition epoch %d, ISR %s"
                " (controller epoch %d)",
                self._broker_id,
                key,
                change,
                state.leader_epoch,
                state.partition_epoch,
                numbers(state.isr),
                state.controller_epoch,
            )

    # --- StopReplica ---

    def stop(
        self, request: StopReplicaRequest, done: Callable[[StopReplicaResponse], None], failed: Failed
    ) -> None:
        self._carry_out(_Order(self._stop(request), done, failed))

    def _stop(self, request: StopReplicaRequest) -> Sliced[StopReplicaResponse]:
        try:
            self.check_controller_epoch(request.controller_epoch)
        except StaleControllerEpoch as error:
            return StopReplicaResponse(error_code=error.code)
        response = StopReplicaResponse(partition_errors=[])
        for count, (topic, order) in enumerate(_stop_orders(request), 1):
            error_code = self._stop_one(TopicPartition(topic, order.partition_index), order)
            response.partition_errors.append(
                StopReplicaPartitionError(
                    topic_name=topic, partition_index=order.partition_index, error_code=error_code
                )
            )
            if count % PARTITIONS_PER_SLICE == 0:
                yield
        self._fetchers.close_idle()
        return response

    def _stop_one(self, key: TopicPartition, order: StopReplicaPartitionState) -> int:
        known = self._table.find(key)
        if known is not None:
            if known.log.log_directory.failure is not None:
                return KafkaStorageError.code
            if order.leader_epoch not in (NO_EPOCH, DELETING_EPOCH) and (
                order.leader_epoch < known.leadership.leader_epoch
            ):
                return FencedLeaderEpoch.code
        try:
            self._replicas.stop(key, delete=order.delete_partition)
        except KafkaError as error:
            return error.code
        if known is not None:
            state_changes.logger.info(
                "broker %d: partition %s stops%s",
                self._broker_id,
                key,
                ", and its log is deleted" if order.delete_partition else "",
            )
        return NONE


def _check_order(leader_epoch: int, partition_epoch: int, state: LeaderAndIsrPartitionState) -> None:
    """Refuse a stale state: the same leader epoch needs a higher partition epoch."""
    if state.leader_epoch < leader_epoch or (
        state.leader_epoch == leader_epoch and state.partition_epoch <= partition_epoch
    ):
        raise StaleControllerEpoch(
            f"leader epoch {state.leader_epoch} (partition epoch {state.partition_epoch}) is not newer than"
            f" the current leader epoch {leader_epoch} (partition epoch {partition_epoch})"
        )


@contextmanager
def _errors_in(
    outcome: LeaderAndIsrPartitionError,
    key: TopicPartition,
    leader_epoch: int,
    refused: list[LeaderAndIsrPartitionError],
) -> Iterator[None]:
    """Keep an error inside its partition; `refused` gets the errors that pass with a retry."""
    try:
        yield
    except KafkaError as error:
        logger.info(
            "partition %s: LeaderAndIsr with leader epoch %d is refused: %s", key, leader_epoch, error
        )
        outcome.error_code = error.code
        if reach_of(error) is Reach.REQUEST:
            refused.append(outcome)
    except OSError as error:
        logger.error("%s: %s", key, error)
        outcome.error_code = KafkaStorageError.code
        if reach_of(error) is Reach.REQUEST:
            refused.append(outcome)
    except Exception:
        logger.exception("partition %s: LeaderAndIsr with leader epoch %d failed", key, leader_epoch)
        outcome.error_code = UnknownServerError.code


def _partition_states(
    request: LeaderAndIsrRequest,
) -> Iterator[tuple[str, Uuid, LeaderAndIsrPartitionState]]:
    for state in request.ungrouped_partition_states:
        yield state.topic_name, ZERO_UUID, state
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, topic.topic_id, state


def _stop_orders(request: StopReplicaRequest) -> Iterator[tuple[str, StopReplicaPartitionState]]:
    """Partition states of StopReplica in the form of the newest version."""
    for old in request.ungrouped_partitions:
        yield (
            old.topic_name,
            StopReplicaPartitionState(
                partition_index=old.partition_index, delete_partition=request.delete_partitions
            ),
        )
    for grouped in request.topics:
        for index in grouped.partition_indexes:
            yield (
                grouped.name,
                StopReplicaPartitionState(partition_index=index, delete_partition=request.delete_partitions),
            )
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, state
