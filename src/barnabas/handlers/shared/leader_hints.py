"""Current leader in NOT_LEADER_OR_FOLLOWER responses (KIP-951), so that the client need not refresh its
metadata.

A broker that loses a partition knows the new leader before UpdateMetadata reaches every broker. A client that
refreshes at that moment may get the old leader, and refreshes again only after its back-off.
"""

from __future__ import annotations

from barnabas.core.errors import FencedLeaderEpoch, NotLeaderOrFollower
from barnabas.core.ids import TopicPartition
from barnabas.core.steps import Sliced
from barnabas.handlers.shared.endpoints import endpoint_of
from barnabas.protocol.messages import fetch
from barnabas.protocol.messages.produce import LeaderIdAndEpoch, NodeEndpoint, ProduceResponse
from barnabas.requests.context import RequestContext

_MOVED = frozenset({NotLeaderOrFollower.code, FencedLeaderEpoch.code})


def _leader_of(topic: str, index: int, context: RequestContext) -> tuple[int, int] | None:
    """Leader and leader epoch: the newer of this broker's LeaderAndIsr and the metadata cache."""
    broker = context.broker
    known = broker.metadata.partition(topic, index)
    replica = broker.replicas.find(TopicPartition(topic, index))
    if replica is not None:
        led = replica.leadership
        if known is None or led.leader_epoch > known.leader_epoch:
            return None if led.leader_id < 0 else (led.leader_id, led.leader_epoch)
    return None if known is None or known.leader < 0 else (known.leader, known.leader_epoch)


def add_leader_hints(response: ProduceResponse, context: RequestContext) -> Sliced[None]:
    leaders: set[int] = set()
    for topic in response.responses:
        yield
        for answer in topic.partition_responses:
            yield
            if answer.error_code not in _MOVED:
                continue
            name = topic.name or context.topic_name(topic.topic_id) or ""
            leader = _leader_of(name, answer.index, context)
            if leader is not None:
                answer.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
                leaders.add(leader[0])
    for broker_id in leaders:
        node = endpoint_of(context.broker, broker_id, context.exchange.connection)
        if node is not None:
            host, port = node.endpoint
            response.node_endpoints.append(
                NodeEndpoint(node_id=broker_id, host=host, port=port, rack=node.rack)
            )


def add_fetch_leader_hints(
    response: fetch.FetchResponse, context: RequestContext, *, with_endpoints: bool
) -> Sliced[None]:
    """Followers know the brokers' endpoints, so only consumers get them."""
    leaders: set[int] = set()
    for topic in response.responses:
        yield
        for answer in topic.partitions:
            yield
            if answer.error_code not in _MOVED:
                continue
            name = context.topic_name(topic.topic_id) or ""
            leader = _leader_of(name, answer.partition_index, context)
            if leader is not None:
                answer.current_leader = fetch.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
                leaders.add(leader[0])
    for broker_id in leaders if with_endpoints else ():
        node = endpoint_of(context.broker, broker_id, context.exchange.connection)
        if node is not None:
            host, port = node.endpoint
            response.node_endpoints.append(
                fetch.NodeEndpoint(node_id=broker_id, host=host, port=port, rack=node.rack)
            )
