"""Preferred read replica of a consumer (KIP-392).

With `replica.selector.class` set to Kafka's RackAwareReplicaSelector, a consumer that names its rack is sent
to a replica there. That is the leader if it is in the rack, else the follower with the longest log. Only
in-sync followers that have the consumer's offset qualify. Without a replica in its rack, or without the
setting, the consumer reads from the leader.
"""

from __future__ import annotations

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.ids import BrokerId
from barnabas.replication.partition.fetching import NO_REPLICA
from barnabas.replication.partition.partition import Partition

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReplicaSelector:
    def __init__(self, broker_id: BrokerId, config: BrokerConfig, metadata: MetadataCache | None) -> None:
        self._broker_id = broker_id
        self._config = config
        self._metadata = metadata

    def choose(self, partition: Partition, rack_id: str, fetch_offset: int) -> int:
        """Another broker to read from, or NO_REPLICA."""
        metadata = self._metadata
        if (
            metadata is None
            or self._config.replica_selector_class != RACK_AWARE_SELECTOR
            or not partition.leadership.is_leader
        ):
            return NO_REPLICA
        here = metadata.broker(self._broker_id)
        if here is None or here.rack == rack_id:
            return NO_REPLICA
        best = None
        for broker_id, follower in partition.followers.items():
            if not (
                broker_id in partition.leadership.isr
                and follower.start_offset <= fetch_offset <= follower.end_offset
            ):
                continue
            broker = metadata.broker(broker_id)
            if broker is None or broker.rack != rack_id:
                continue
            if best is None or follower.end_offset > best.end_offset:
                best = follower
        return NO_REPLICA if best is None else best.broker_id
