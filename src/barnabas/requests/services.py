"""Parts of a broker that handlers use, by name.

`node` fills this in once at start-up; a handler reads the parts it needs from `context.broker`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from barnabas.administration.internal_topics import InternalTopics
from barnabas.administration.metadata_wait import MetadataWait
from barnabas.administration.producer_ids import ProducerIds
from barnabas.administration.topics import TopicAdministration
from barnabas.cluster.coordination.contract import Coordination
from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.cluster.stores.acl_replica import AclReplica
from barnabas.cluster.stores.delegation_tokens import DelegationTokens
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.controller.controller import KafkaController
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.markers.local import LocalMarkers
from barnabas.coordinator.transaction.verification.add_partitions_to_txn_manager import (
    AddPartitionsToTxnManager,
)
from barnabas.core.clock import Clock
from barnabas.core.ids import BrokerId
from barnabas.quota.client_quotas import ClientQuotas
from barnabas.replication.leader.fetch_session_cache import FetchSessionCache
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.requests.registry import ApiTable
from barnabas.security.acl.authorizer import Authorizer
from barnabas.telemetry.client_instances import ClientInstances

AddressOf = Callable[[str], Awaitable[str]]
"""The address of a host; raises UnknownHost."""


@dataclass(slots=True)
class Services:
    broker_id: BrokerId
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    apis: ApiTable
    features: Mapping[str, int]
    """Level of each finalized feature."""
    znodes: Coordination
    metadata: MetadataCache
    replicas: ReplicaManager
    fetch_sessions: FetchSessionCache
    topics: TopicAdministration
    configs: ConfigRepository
    quotas: ClientQuotas
    producer_ids: ProducerIds
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    add_partitions_to_txn_manager: AddPartitionsToTxnManager
    markers: LocalMarkers
    internal_topics: InternalTopics
    controller: KafkaController
    metadata_wait: MetadataWait
    authorizer: Authorizer
    acls: AclReplica | None
    """ACL replica, if the authorizer uses ACLs."""
    address_of: AddressOf
    telemetry: ClientInstances
    tokens: DelegationTokens | None = None
    """None without `delegation.token.secret.key`."""
