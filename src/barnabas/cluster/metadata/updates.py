"""Applying an UpdateMetadata request of the controller to the metadata cache.

The request names all live brokers, and the partitions whose state has changed. A partition whose leader is -2
is being deleted. Partitions of a topic are numbered without gaps in the cache. A partition that no request
has described yet, though a later one of its topic has been, stands there without replicas.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.cluster.metadata.cache import MetadataCache, PartitionMetadata
from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.core.addressing.endpoints import SECURITY_PROTOCOLS, Endpoint, ListenerEndpoint
from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)

LEADER_DURING_DELETE = -2


def apply_update(metadata: MetadataCache, request: UpdateMetadataRequest) -> list[str]:
    """Bring the cache up to date; returns the names of deleted topics."""
    metadata.put_controller(request.controller_id)
    metadata.put_brokers([_broker(broker, metadata) for broker in request.live_brokers])
    deleted: list[str] = []
    for name, topic_id, states in _states_by_topic(request):
        known = metadata.topic(name)
        partitions: dict[int, PartitionMetadata] = {}
        if known is not None and topic_id in (ZERO_UUID, known.topic_id):
            partitions = {each.partition: each for each in known.partitions if each.replicas}
        for state in states:
            if state.leader == LEADER_DURING_DELETE:
                partitions.pop(state.partition_index, None)
            else:
                partitions[state.partition_index] = _partition(state)
        if partitions:
            count = max(partitions) + 1
            metadata.put_topic(
                name,
                known.topic_id if known is not None and topic_id == ZERO_UUID else topic_id,
                [partitions.get(each) or PartitionMetadata(each, ()) for each in range(count)],
            )
        elif metadata.remove_topic(name) is not None:
            deleted.append(name)
    return deleted


def _states_by_topic(
    request: UpdateMetadataRequest,
) -> Iterator[tuple[str, Uuid, list[UpdateMetadataPartitionState]]]:
    ungrouped: dict[str, list[UpdateMetadataPartitionState]] = {}
    for state in request.ungrouped_partition_states:
        ungrouped.setdefault(state.topic_name, []).append(state)
    for name, states in ungrouped.items():
        yield name, ZERO_UUID, states
    for topic in request.topic_states:
        yield topic.topic_name, topic.topic_id, topic.partition_states


def _partition(state: UpdateMetadataPartitionState) -> PartitionMetadata:
    return PartitionMetadata(
        state.partition_index,
        tuple(state.replicas),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=tuple(state.isr),
        offline=tuple(state.offline_replicas),
        controller_epoch=state.controller_epoch,
    )


def _broker(broker: UpdateMetadataBroker, metadata: MetadataCache) -> BrokerInfo:
    if broker.endpoints:
        endpoints = tuple(
            ListenerEndpoint(
                each.listener or SECURITY_PROTOCOLS[each.security_protocol],
                Endpoint(each.host, each.port),
                SECURITY_PROTOCOLS[each.security_protocol],
            )
            for each in broker.endpoints
        )
    else:
        endpoints = (ListenerEndpoint("PLAINTEXT", Endpoint(broker.v0_host, broker.v0_port)),)
    known = metadata.broker(broker.id)
    if known is not None and known.endpoints == endpoints and known.rack == broker.rack:
        return known
    return BrokerInfo(broker.id, endpoints, broker.rack)
