"""KIP-951: an answer "not the leader" also says who is, so that the client need not ask again."""

from __future__ import annotations

from barnabas.core.errors import FencedLeaderEpoch, NotLeaderOrFollower
from barnabas.handlers.context import RequestContext
from barnabas.handlers.topic_ids import topic_name
from barnabas.protocol.messages import fetch
from barnabas.protocol.messages.produce import LeaderIdAndEpoch, NodeEndpoint, ProduceResponse

_MOVED = frozenset({NotLeaderOrFollower.code, FencedLeaderEpoch.code})


def add_leader_hints(response: ProduceResponse, context: RequestContext) -> None:
    metadata = context.broker.metadata
    leaders: set[int] = set()
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code not in _MOVED:
                continue
            name = topic.name or topic_name(context, topic.topic_id) or ""
            known = metadata.partition(name, answer.index)
            if known is not None and known.leader >= 0:
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=known.leader, leader_epoch=known.leader_epoch
                )
                leaders.add(known.leader)
    for broker_id in leaders:
        endpoint = context.broker.endpoint_of(broker_id, context.exchange.connection)
        if endpoint is not None:
            response.node_endpoints.append(
                NodeEndpoint(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack)
            )


def add_fetch_leader_hints(
    response: fetch.FetchResponse, context: RequestContext, *, with_endpoints: bool
) -> None:
    """Followers know where brokers are, so only consumers are told the addresses."""
    metadata = context.broker.metadata
    leaders: set[int] = set()
    for topic in response.responses:
        for answer in topic.partitions:
            if answer.error_code not in _MOVED:
                continue
            known = metadata.partition(topic_name(context, topic.topic_id) or "", answer.partition_index)
            if known is not None and known.leader >= 0:
                answer.current_leader = fetch.LeaderIdAndEpoch(
                    leader_id=known.leader, leader_epoch=known.leader_epoch
                )
                leaders.add(known.leader)
    for broker_id in leaders if with_endpoints else ():
        endpoint = context.broker.endpoint_of(broker_id, context.exchange.connection)
        if endpoint is not None:
            response.node_endpoints.append(
                fetch.NodeEndpoint(
                    node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack
                )
            )
