"""KIP-951: an answer "not the leader" also says who is, so that the client need not ask again.

A broker that has just lost a partition knows its new leader before the news of it has gone round: a client
that asks any broker at that moment may hear of the old leader, and ask again only after a while.
"""

from __future__ import annotations

from barnabas.core.errors import FencedLeaderEpoch, NotLeaderOrFollower
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages import fetch
from barnabas.protocol.messages.produce import LeaderIdAndEpoch, NodeEndpoint, ProduceResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.endpoints import endpoint_of

_MOVED = frozenset({NotLeaderOrFollower.code, FencedLeaderEpoch.code})


def _leader_of(topic: str, index: int, context: RequestContext) -> tuple[int, int] | None:
    """The leader and its epoch, by whichever is newer of our own order and what everybody is told."""
    broker = context.broker
    known = broker.metadata.partition(topic, index)
    replica = broker.replicas.find(TopicPartition(topic, index))
    if replica is not None:
        led = replica.leadership
        if known is None or led.leader_epoch > known.leader_epoch:
            return None if led.leader_id < 0 else (led.leader_id, led.leader_epoch)
    return None if known is None or known.leader < 0 else (known.leader, known.leader_epoch)


def add_leader_hints(response: ProduceResponse, context: RequestContext) -> None:
    leaders: set[int] = set()
    for topic in response.responses:
        for answer in topic.partition_responses:
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
) -> None:
    """Followers know where brokers are, so only consumers are told the addresses."""
    leaders: set[int] = set()
    for topic in response.responses:
        for answer in topic.partitions:
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
