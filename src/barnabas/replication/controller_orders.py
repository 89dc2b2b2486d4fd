"""What the controller orders: lead this, follow that, stop the other.

Orders may come late, twice, or from a controller that has been replaced. Three epochs sort them
out, and a lower one is always refused: the controller's for a whole request, the broker's (is it
meant for an earlier life of ours? `ReplicaManager.check_controller`), the leader's for each partition.

Making thousands of logs takes a while, so an order is carried out in slices, and others have a turn between
two of them (`defer`). One order is carried out before the next begins.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

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
from barnabas.replication.leadership import LeaderAndIsr
from barnabas.replication.local_replicas import LocalReplicas
from barnabas.replication.partition import Partition
from barnabas.replication.replica_table import ReplicaTable
from barnabas.storage.failures import Reach, reach_of

logger = logging.getLogger(__name__)

FULL_LIST = 2
"""The `type` of a LeaderAndIsr request that names every partition of this broker."""

DELETING_EPOCH = -2

PARTITIONS_PER_SLICE = 16

T = TypeVar("T")

Failed = Callable[[Exception], None]

Slices = Generator[None, None, T]
"""Carries out an order, stops after each slice, and returns the response."""

_PartitionOrder = tuple[TopicPartition, Uuid, LeaderAndIsrPartitionState, LeaderAndIsrPartitionError]


class _Order(NamedTuple):
    slices: Slices[Any]
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
        """Refuse a controller that has been replaced; remember the newest."""
        if epoch < self.controller_epoch:
            raise StaleControllerEpoch(f"the controller epoch is {self.controller_epoch}, not {epoch}")
        self.controller_epoch = epoch

    def close(self) -> None:
        """Leave off; nobody waits for an answer any more."""
        while self._orders:
            self._orders.popleft().slices.close()

    def _carry_out(self, order: _Order) -> None:
        self._orders.append(order)
        if len(self._orders) == 1:
            self._take_turn()

    def _take_turn(self) -> None:
        """One slice of the first order."""
        if not self._orders:
            return
        order = self._orders[0]
        try:
            next(order.slices)
        except StopIteration as end:
            self._orders.popleft()
            order.done(end.value)
        except Exception as error:  # noqa: BLE001 - whoever asked for it is told
            self._orders.popleft()
            order.failed(error)
        if self._orders:
            self._defer(self._take_turn)

    # -- LeaderAndIsr -------------------------------------------------------------------------

    def lead_and_follow(
        self, request: LeaderAndIsrRequest, done: Callable[[LeaderAndIsrResponse], None], failed: Failed
    ) -> None:
        """Lead and follow as ordered; the answer has the form of v5 and later."""
        self._carry_out(_Order(self._lead_and_follow(request), done, failed))

    def _lead_and_follow(self, request: LeaderAndIsrRequest) -> Slices[LeaderAndIsrResponse]:
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
        refused = yield from self._apply_all(orders, request.broker_epoch)
        self._fetchers.close_idle()
        if refused:
            # Told of a replica, this error means a failed disk, from which only a new start brings it back.
            # Told of the whole, it means to be told again: what was done by then is not done twice.
            return LeaderAndIsrResponse(error_code=KafkaStorageError.code)
        return response

    def _apply_all(
        self, orders: list[_PartitionOrder], broker_epoch: int
    ) -> Slices[list[LeaderAndIsrPartitionError]]:
        """First what we lead, and only at the end we begin to fetch: the others have the same orders,
        and who is asked for a partition that it does not lead yet has to refuse.

        Returns what could not be carried out for a reason that passes: there was no file descriptor."""
        refused: list[LeaderAndIsrPartitionError] = []
        me = self._broker_id
        to_follow: list[tuple[Partition, LeaderAndIsrPartitionError]] = []
        ordered = sorted(orders, key=lambda order: order[2].leader != me)
        for count, (key, topic_id, state, outcome) in enumerate(ordered, 1):
            with _errors_in(outcome, key, state.leader_epoch, refused):
                partition = self._lead_or_follow(key, topic_id, state, broker_epoch)
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
        """Returns the partition if it is to be fetched from another leader than before."""
        known = self._table.find(key)
        if known is not None:
            leadership = known.leadership
            if leadership.is_leader and leadership.leader_epoch == state.leader_epoch:
                # Even if there is no other news in it: we lead, as far as this epoch of ours goes.
                leadership.confirm(broker_epoch)
            _check_order(leadership.leader_epoch, leadership.partition_epoch, state)
            if topic_id != ZERO_UUID and known.topic_id not in (topic_id, ZERO_UUID):
                raise InconsistentTopicId(f"{key} has the topic id {known.topic_id}, not {topic_id}")
            if known.log.log_directory.failure is not None:
                raise KafkaStorageError(f"the log directory of {key} is offline")
        if self._broker_id not in state.replicas:
            raise UnknownTopicOrPartition(f"broker {self._broker_id} is no replica of {key}")
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
            partition.leadership.confirm(broker_epoch)
            self._replicas.elected(partition, is_new=is_new)
            return None
        if not partition.become_follower(ordered):
            return None
        self._fetchers.unfollow(key)
        self._replicas.resigned(partition)
        return partition

    # -- StopReplica --------------------------------------------------------------------------

    def stop(
        self, request: StopReplicaRequest, done: Callable[[StopReplicaResponse], None], failed: Failed
    ) -> None:
        self._carry_out(_Order(self._stop(request), done, failed))

    def _stop(self, request: StopReplicaRequest) -> Slices[StopReplicaResponse]:
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
        return NONE


def _check_order(leader_epoch: int, partition_epoch: int, state: LeaderAndIsrPartitionState) -> None:
    """An order of our own epoch is news only if it follows a later version of the state."""
    if state.leader_epoch < leader_epoch or (
        state.leader_epoch == leader_epoch and state.partition_epoch <= partition_epoch
    ):
        raise StaleControllerEpoch(
            f"leader epoch {state.leader_epoch} version {state.partition_epoch} does not follow "
            f"{leader_epoch} version {partition_epoch}"
        )


@contextmanager
def _errors_in(
    outcome: LeaderAndIsrPartitionError,
    key: TopicPartition,
    leader_epoch: int,
    refused: list[LeaderAndIsrPartitionError],
) -> Iterator[None]:
    """What goes wrong with one partition is told of that partition; `refused` gets what will pass."""
    try:
        yield
    except KafkaError as error:
        logger.info("%s: an order of epoch %d is refused: %s", key, leader_epoch, error)
        outcome.error_code = error.code
        if reach_of(error) is Reach.REQUEST:
            refused.append(outcome)
    except OSError as error:
        logger.error("%s: %s", key, error)
        outcome.error_code = KafkaStorageError.code
        if reach_of(error) is Reach.REQUEST:
            refused.append(outcome)
    except Exception:
        logger.exception("%s: an order of epoch %d failed", key, leader_epoch)
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
    """All versions in the form of the newest."""
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
