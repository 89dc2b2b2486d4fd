"""What the brokers are to be told, collected over an event and sent together.

A broker gets one LeaderAndIsr, one UpdateMetadata and one StopReplica for everything that an event
changed, in this order: it must know its leaders before clients are sent to it, and a replica is
stopped after those that remain know of it. Where one event needs another order (a broker must know
the live brokers before it can follow one of them; a replica that was stopped is started again) the
batch is flushed in between.

A leadership that moves from one live broker to another (to the preferred leader, off a broker that shuts
down) is given up before it is taken up: who gains such partitions gets a second LeaderAndIsr for them, which
waits for the answers of those that lose them. Otherwise both would lead for a moment, and what the former
leader acknowledged after the new one had begun would be lost. Between two brokers that change places neither
waits for what waits for it, since what is lost and what is gained is told apart. A controller that takes over
in the middle of such a move does not know whether the former leader has heard of it, nor who that was: what
was written shortly before, every other replica gives up first.

The first LeaderAndIsr to a broker that came, or from a controller that is new, names everything that the
broker has, and says so: what the broker has besides is stray (its replica was moved away, or its topic
deleted, while the broker was gone). It says so only if that is certain.

Every request carries the controller epoch and the epoch of the broker's registration: neither a
former controller nor a message to a broker's former life has any effect.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from barnabas.cluster.broker_znodes import BrokerInfo
from barnabas.cluster.metadata_updates import LEADER_DURING_DELETE
from barnabas.cluster.znodes import PartitionState
from barnabas.controller.context import ControllerContext
from barnabas.controller.delivery import Delivery
from barnabas.controller.replica_states import ReplicaStatus
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
from barnabas.protocol.schema import Message

logger = logging.getLogger(__name__)

SECURITY_PROTOCOLS: Mapping[str, int] = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

CHANGES, ALL = 1, 2
"""Whether a LeaderAndIsr names some of a broker's replicas, or every one of them."""

_States = Mapping[TopicPartition, LeaderAndIsrPartitionState]


class Send(Protocol):
    """Queues a request for a broker; its answer, if one ever comes, goes to `answered`. It is not sent before
    the deliveries in `after` are over, or have taken too long."""

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
    """Who hears what the brokers say."""

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
        self._former_leaders: dict[TopicPartition, frozenset[int]] = {}
        """Who may lead now, of partitions that somebody else is to lead: they live, and are told."""
        self._metadata_brokers: set[int] = set()
        self._metadata: dict[TopicPartition, UpdateMetadataPartitionState] = {}

    # Collecting

    def add_leader_and_isr(
        self,
        broker_ids: Iterable[int],
        topic_partition: TopicPartition,
        state: PartitionState,
        *,
        is_new: bool = False,
        former_leader: int = NO_LEADER,
        is_known: bool = False,
    ) -> None:
        """Tell these replicas who leads, and everyone's metadata unless it is known there."""
        recipients = [broker_id for broker_id in broker_ids if broker_id >= 0]
        is_handover = former_leader != state.leader and former_leader in recipients
        # What is all that a broker has is told in one piece.
        is_divided = is_handover and bool(self._complete)
        if is_divided or any(topic_partition in self._stop_replica.get(each, ()) for each in recipients):
            self.flush()
        if is_handover:
            self._former_leaders.setdefault(topic_partition, frozenset((former_leader,)))
        assignment = self._context.assignment(topic_partition)
        for broker_id in recipients:
            pending = self._leader_and_isr[broker_id]
            former = pending.get(topic_partition)
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
                is_new=is_new or (former is not None and former.is_new),
                leader_recovery_state=state.leader_recovery_state,
            )
        if not is_known:
            self.add_update_metadata(self._context.live_or_shutting_down_broker_ids, (topic_partition,))

    def complete_lists(self, broker_ids: Iterable[int]) -> None:
        """What these brokers are told next of their replicas is meant to be all that they have."""
        self._complete.update(broker_ids)

    def doubt_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Whoever has these partitions may take itself for the leader still."""
        for topic_partition in partitions:
            self._former_leaders[topic_partition] = frozenset(self._context.replicas(topic_partition))

    def add_stop_replica(
        self, broker_ids: Iterable[int], topic_partition: TopicPartition, *, delete: bool
    ) -> None:
        leader_epoch = self._context.stop_epoch(topic_partition)
        for broker_id in broker_ids:
            if broker_id < 0:
                continue
            pending = self._stop_replica[broker_id]
            former = pending.get(topic_partition)
            pending[topic_partition] = StopReplicaPartitionState(
                partition_index=topic_partition.partition,
                leader_epoch=leader_epoch,
                delete_partition=delete or (former is not None and former.delete_partition),
            )

    def add_update_metadata(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Tell brokers who lives, and what is known of these partitions."""
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

    # Sending

    def flush(self) -> None:
        """Queue everything collected for its broker; for brokers that are gone there is nothing to say."""
        brokers = self._context.brokers
        leader_and_isr, self._leader_and_isr = self._leader_and_isr, defaultdict(dict)
        complete, self._complete = self._complete, set()
        stop_replica, self._stop_replica = self._stop_replica, defaultdict(dict)
        metadata_brokers, self._metadata_brokers = self._metadata_brokers, set()
        metadata, self._metadata = self._metadata, {}
        former_leaders, self._former_leaders = self._former_leaders, {}
        self._tell_leaders(leader_and_isr, complete, former_leaders)
        if metadata_brokers:
            self._send_update_metadata(
                [brokers[each] for each in sorted(metadata_brokers & brokers.keys())], metadata
            )
        for broker_id, stopped in stop_replica.items():
            if broker_id in brokers:
                self._send_stop_replica(brokers[broker_id], stopped)

    def _tell_leaders(
        self,
        states: Mapping[int, _States],
        complete: Collection[int],
        former_leaders: Mapping[TopicPartition, frozenset[int]],
    ) -> None:
        """First whatever waits for nobody, then what is to be taken over from those who are told so first."""
        brokers = self._context.brokers
        told: dict[int, Delivery] = {}
        later: dict[int, tuple[_States, _States, int]] = {}
        for broker_id, of_broker in states.items():
            if broker_id not in brokers:
                continue
            gained = _gained(broker_id, of_broker, former_leaders)
            others = {each: of_broker[each] for each in of_broker if each not in gained}
            is_all = broker_id in complete and self._are_all(broker_id, of_broker)
            if others:
                request_type = ALL if is_all and not gained else CHANGES
                told[broker_id] = self._send_leader_and_isr(brokers[broker_id], others, request_type)
            if gained:
                # What is gained waits, and nothing else does; a list of everything comes after that.
                later[broker_id] = (gained, of_broker, ALL) if is_all else (gained, gained, CHANGES)
        for broker_id, (gained, listed, request_type) in later.items():
            former = {each for partition in gained for each in former_leaders[partition]} - {broker_id}
            after = [told[each] for each in sorted(former & told.keys())]
            self._send_leader_and_isr(brokers[broker_id], listed, request_type, after)

    def _are_all(self, broker_id: int, states: Collection[TopicPartition]) -> bool:
        """Whether a broker has no replicas but these. A topic that cannot be read may have some there."""
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
        logger.debug("LeaderAndIsr of %d partitions for broker %d", len(states), broker.id)

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
    broker_id: int, states: _States, former_leaders: Mapping[TopicPartition, frozenset[int]]
) -> _States:
    """What a broker leads from now on in place of another that lives."""
    return {
        each: state
        for each, state in states.items()
        if state.leader == broker_id and former_leaders.get(each, frozenset()) - {broker_id}
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
