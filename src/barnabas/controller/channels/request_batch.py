"""Request batch: the state changes of one event, collected and sent together.

A broker gets one LeaderAndIsr, one UpdateMetadata and one StopReplica for all changes of an event, in this
order. It must know its leaders before clients are sent to it, and a replica is stopped after the remaining
ones know of it. Some events need another order. A broker must know the live brokers before it can follow one
of them, and a stopped replica may be started again. There the batch is flushed in between.

When a leadership moves from one live broker to another, the previous leader gives it up first. Examples are
preferred leader elections and controlled shutdowns. The new leader gets a second LeaderAndIsr for such
partitions, which waits for the responses of the previous leaders. Otherwise both would lead for a moment, and
records that the previous leader acknowledged after the new one had begun would be lost. Two brokers that swap
leaderships do not wait for each other, because losses and gains are separate requests. A controller that
takes over in the middle of such a move knows neither the previous leader nor whether it received the request.
So for recent states every other replica gives up the leadership first.

The first LeaderAndIsr to a started broker, or from a new controller, is of type ALL: it names all replicas of
the broker. Any other replica there is stray: it was moved away, or its topic deleted, while the broker was
down. The type is ALL only if the list is certainly complete.

Every request carries the controller epoch and the broker epoch. So requests of a previous controller, or for
a previous registration of a broker, have no effect.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from barnabas.cluster.metadata.updates import LEADER_DURING_DELETE
from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.cluster.znodes.layout import PartitionState
from barnabas.controller.channels.delivery import Delivery
from barnabas.controller.state.context import ControllerContext
from barnabas.controller.state.replica_states import ReplicaStatus
from barnabas.core.ids import NO_LEADER, ZERO_UUID, BrokerId, TopicPartition
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from barnabas.protocol.schema.message import Message

logger = logging.getLogger(__name__)

SECURITY_PROTOCOLS: Mapping[str, int] = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

CHANGES, ALL = 1, 2
"""LeaderAndIsr types: some of a broker's replicas, or every one of them."""

_States = Mapping[TopicPartition, LeaderAndIsrPartitionState]


class Send(Protocol):
    """Queues a request for a broker; its response, if any, goes to `answered`.

    The request is not sent before the deliveries in `after` are over, or have taken too long.
    """

    def __call__(
        self,
        broker_id: int,
        request: Message,
        response_class: type[Message],
        answered: Callable[[Message], None],
        /,
        *,
        after: Collection[Delivery] = (),
    ) -> Delivery: ...


class Responses(Protocol):
    """Receiver of the brokers' responses."""

    def leader_and_isr_answered(self, broker_id: int, response: LeaderAndIsrResponse) -> None: ...
    def update_metadata_answered(self, broker_id: int, response: UpdateMetadataResponse) -> None: ...
    def stop_replica_answered(
        self, broker_id: int, response: StopReplicaResponse, deleted: frozenset[TopicPartition]
    ) -> None: ...


class RequestBatch:
    def __init__(
        self,
        context: ControllerContext,
        controller_id: BrokerId,
        controller_epoch: int,
        listener_name: str,
        send: Send,
        responses: Responses,
    ) -> None:
        self._context = context
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._listener_name = listener_name
        self._send = send
        self._responses = responses
        self._leader_and_isr: defaultdict[int, dict[TopicPartition, LeaderAndIsrPartitionState]]
        self._stop_replica: defaultdict[int, dict[TopicPartition, StopReplicaPartitionState]]
        self.clear()

    def clear(self) -> None:
        self._leader_and_isr = defaultdict(dict)
        self._stop_replica = defaultdict(dict)
        self._complete: set[int] = set()
        self._previous_leaders: dict[TopicPartition, frozenset[int]] = {}
        """Live brokers that may still believe they lead a partition which is moving to another leader."""
        self._metadata_brokers: set[int] = set()
        self._metadata: dict[TopicPartition, UpdateMetadataPartitionState] = {}

    # --- collecting ---

    def add_leader_and_isr(
        self,
        broker_ids: Iterable[int],
        topic_partition: TopicPartition,
        state: PartitionState,
        *,
        is_new: bool = False,
        previous_leader: int = NO_LEADER,
        is_known: bool = False,
    ) -> None:
        """Add a LeaderAndIsr for these replicas, and an UpdateMetadata unless `is_known`."""
        recipients = [broker_id for broker_id in broker_ids if broker_id >= 0]
        is_handover = previous_leader != state.leader and previous_leader in recipients
        # A LeaderAndIsr of type ALL cannot be divided.
        is_divided = is_handover and bool(self._complete)
        if is_divided or any(topic_partition in self._stop_replica.get(each, ()) for each in recipients):
            self.flush()
        if is_handover:
            self._previous_leaders.setdefault(topic_partition, frozenset((previous_leader,)))
        assignment = self._context.assignment(topic_partition)
        for broker_id in recipients:
            pending = self._leader_and_isr[broker_id]
            previous = pending.get(topic_partition)
            pending[topic_partition] = LeaderAndIsrPartitionState(
                topic_name=topic_partition.topic,
                partition_index=topic_partition.partition,
                controller_epoch=state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=list(state.isr),
                partition_epoch=state.state_version,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding_replicas),
                removing_replicas=list(assignment.removing_replicas),
                is_new=is_new or (previous is not None and previous.is_new),
                leader_recovery_state=state.leader_recovery_state,
            )
        if not is_known:
            self.add_update_metadata(self._context.live_or_shutting_down_broker_ids, (topic_partition,))

    def complete_lists(self, broker_ids: Iterable[int]) -> None:
        """Send these brokers a LeaderAndIsr of type ALL next."""
        self._complete.update(broker_ids)

    def doubt_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that any replica of these partitions may still believe it leads them."""
        for topic_partition in partitions:
            self._previous_leaders[topic_partition] = frozenset(self._context.replicas(topic_partition))

    def add_stop_replica(
        self, broker_ids: Iterable[int], topic_partition: TopicPartition, *, delete: bool
    ) -> None:
        leader_epoch = self._context.stop_epoch(topic_partition)
        for broker_id in broker_ids:
            if broker_id < 0:
                continue
            pending = self._stop_replica[broker_id]
            previous = pending.get(topic_partition)
            pending[topic_partition] = StopReplicaPartitionState(
                partition_index=topic_partition.partition,
                leader_epoch=leader_epoch,
                delete_partition=delete or (previous is not None and previous.delete_partition),
            )

    def add_update_metadata(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Add an UpdateMetadata with the live brokers and the states of these partitions."""
        context = self._context
        self._metadata_brokers.update(broker_ids)
        for topic_partition in partitions:
            state = context.leadership.get(topic_partition)
            if state is None:
                continue
            replicas = context.replicas(topic_partition)
            is_deleted = context.is_queued_for_deletion(topic_partition.topic)
            self._metadata[topic_partition] = UpdateMetadataPartitionState(
                topic_name=topic_partition.topic,
                partition_index=topic_partition.partition,
                controller_epoch=state.controller_epoch,
                leader=LEADER_DURING_DELETE if is_deleted else state.leader,
                leader_epoch=state.leader_epoch,
                isr=list(state.isr),
                zk_version=state.state_version,
                replicas=list(replicas),
                offline_replicas=[
                    replica for replica in replicas if not context.is_replica_online(replica, topic_partition)
                ],
            )

    # --- sending ---

    def flush(self) -> None:
        """Queue all collected requests. Those for brokers that are gone are dropped."""
        brokers = self._context.brokers
        leader_and_isr, self._leader_and_isr = self._leader_and_isr, defaultdict(dict)
        complete, self._complete = self._complete, set()
        stop_replica, self._stop_replica = self._stop_replica, defaultdict(dict)
        metadata_brokers, self._metadata_brokers = self._metadata_brokers, set()
        metadata, self._metadata = self._metadata, {}
        previous_leaders, self._previous_leaders = self._previous_leaders, {}
        self._send_leaders(leader_and_isr, complete, previous_leaders)
        if metadata_brokers:
            self._send_update_metadata(
                [brokers[each] for each in sorted(metadata_brokers & brokers.keys())], metadata
            )
        for broker_id, stopped in stop_replica.items():
            if broker_id in brokers:
                self._send_stop_replica(brokers[broker_id], stopped)

    def _send_leaders(
        self,
        states: Mapping[int, _States],
        complete: Collection[int],
        previous_leaders: Mapping[TopicPartition, frozenset[int]],
    ) -> None:
        """Send the states that wait for nothing first, then those that wait for previous leaders."""
        brokers = self._context.brokers
        sent: dict[int, Delivery] = {}
        later: dict[int, tuple[_States, _States, int]] = {}
        for broker_id, of_broker in states.items():
            if broker_id not in brokers:
                continue
            gained = _gained(broker_id, of_broker, previous_leaders)
            others = {each: of_broker[each] for each in of_broker if each not in gained}
            is_all = broker_id in complete and self._are_all(broker_id, of_broker)
            if others:
                request_type = ALL if is_all and not gained else CHANGES
                sent[broker_id] = self._send_leader_and_isr(brokers[broker_id], others, request_type)
            if gained:
                # Only gained partitions wait. A list of type ALL comes after that.
                later[broker_id] = (gained, of_broker, ALL) if is_all else (gained, gained, CHANGES)
        for broker_id, (gained, listed, request_type) in later.items():
            previous = {each for partition in gained for each in previous_leaders[partition]} - {broker_id}
            after = [sent[each] for each in sorted(previous & sent.keys())]
            self._send_leader_and_isr(brokers[broker_id], listed, request_type, after)

    def _are_all(self, broker_id: int, states: Collection[TopicPartition]) -> bool:
        """Whether a broker has no other replicas. An unreadable topic may have some there."""
        context = self._context
        return not context.unreadable_topics and all(
            replica.topic_partition in states
            for replica in context.replicas_on_brokers((broker_id,))
            if context.replica_states.get(replica) is not ReplicaStatus.DELETION_SUCCESSFUL
        )

    def _send_leader_and_isr(
        self,
        broker: BrokerInfo,
        states: Mapping[TopicPartition, LeaderAndIsrPartitionState],
        request_type: int,
        after: Collection[Delivery] = (),
    ) -> Delivery:
        topics: dict[str, list[LeaderAndIsrPartitionState]] = defaultdict(list)
        for topic_partition, state in states.items():
            topics[topic_partition.topic].append(state)
        topic_ids = self._context.topic_ids
        request = LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            broker_epoch=broker.epoch,
            type=request_type,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name=topic, topic_id=topic_ids.get(topic, ZERO_UUID), partition_states=of_topic
                )
                for topic, of_topic in topics.items()
            ],
            live_leaders=self._live_leaders({state.leader for state in states.values()}),
        )
        logger.debug("broker %d: LeaderAndIsr of %d partitions", broker.id, len(states))

        def answered(response: Message) -> None:
            assert isinstance(response, LeaderAndIsrResponse)
            self._responses.leader_and_isr_answered(broker.id, response)

        return self._send(broker.id, request, LeaderAndIsrResponse, answered, after=after)

    def _live_leaders(self, leaders: set[int]) -> list[LeaderAndIsrLiveLeader]:
        brokers = self._context.brokers
        return [
            LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=each.endpoint.host, port=each.endpoint.port)
            for broker_id in sorted(leaders & brokers.keys())
            for each in brokers[broker_id].endpoints
            if each.listener_name == self._listener_name
        ]

    def _send_update_metadata(
        self,
        recipients: Iterable[BrokerInfo],
        states: Mapping[TopicPartition, UpdateMetadataPartitionState],
    ) -> None:
        topics: dict[str, list[UpdateMetadataPartitionState]] = defaultdict(list)
        for topic_partition, state in states.items():
            topics[topic_partition.topic].append(state)
        topic_ids = self._context.topic_ids
        topic_states = [
            UpdateMetadataTopicState(
                topic_name=topic, topic_id=topic_ids.get(topic, ZERO_UUID), partition_states=of_topic
            )
            for topic, of_topic in topics.items()
        ]
        live_brokers = [_live_broker(broker) for broker in self._context.brokers.values()]
        for recipient in recipients:
            self._send_metadata_to(recipient, topic_states, live_brokers)

    def _send_metadata_to(
        self,
        broker: BrokerInfo,
        topic_states: list[UpdateMetadataTopicState],
        live_brokers: list[UpdateMetadataBroker],
    ) -> None:
        def answered(response: Message) -> None:
            assert isinstance(response, UpdateMetadataResponse)
            self._responses.update_metadata_answered(broker.id, response)

        request = UpdateMetadataRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            broker_epoch=broker.epoch,
            topic_states=topic_states,
            live_brokers=live_brokers,
        )
        self._send(broker.id, request, UpdateMetadataResponse, answered)

    def _send_stop_replica(
        self, broker: BrokerInfo, states: Mapping[TopicPartition, StopReplicaPartitionState]
    ) -> None:
        topics: dict[str, list[StopReplicaPartitionState]] = defaultdict(list)
        for topic_partition, state in states.items():
            topics[topic_partition.topic].append(state)
        deleted = frozenset(each for each, state in states.items() if state.delete_partition)
        request = StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            broker_epoch=broker.epoch,
            topic_states=[
                StopReplicaTopicState(topic_name=topic, partition_states=of_topic)
                for topic, of_topic in topics.items()
            ],
        )

        def answered(response: Message) -> None:
            assert isinstance(response, StopReplicaResponse)
            self._responses.stop_replica_answered(broker.id, response, deleted)

        self._send(broker.id, request, StopReplicaResponse, answered)


def _gained(
    broker_id: int, states: _States, previous_leaders: Mapping[TopicPartition, frozenset[int]]
) -> _States:
    """Partitions that a broker leads from now on instead of another live broker."""
    return {
        each: state
        for each, state in states.items()
        if state.leader == broker_id and previous_leaders.get(each, frozenset()) - {broker_id}
    }


def _live_broker(broker: BrokerInfo) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=each.endpoint.port,
                host=each.endpoint.host,
                listener=each.listener_name,
                security_protocol=SECURITY_PROTOCOLS.get(each.security_protocol, 0),
            )
            for each in broker.endpoints
        ],
        rack=broker.rack,
    )
