"""The parts of a broker that handlers call on, by name.

`node` fills this in once at start-up; a handler reads what it needs from `context.broker`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from barnabas.cluster.acl_replica import AclReplica
from barnabas.cluster.coordination import Coordination
from barnabas.cluster.delegation_tokens import DelegationTokens
from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.repository import ConfigRepository
from barnabas.controller.administration import TopicAdministration
from barnabas.controller.controller import KafkaController
from barnabas.controller.internal_topics import InternalTopics
from barnabas.controller.metadata_wait import MetadataWait
from barnabas.controller.producer_ids import ProducerIds
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.local_markers import LocalMarkers
from barnabas.coordinator.transaction.membership import TransactionMembership
from barnabas.core.clock import Clock
from barnabas.core.ids import BrokerId
from barnabas.quota.client_quotas import ClientQuotas
from barnabas.replication.leader.fetch_session_cache import FetchSessionCache
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.requests.registry import ApiTable
from barnabas.security.acl.authorizer import Authorizer

AddressOf = Callable[[str], Awaitable[str]]
"""The address of a host; raises UnknownHost."""


@dataclass(slots=True)
class Services:
    broker_id: BrokerId
    cluster_id: str
    settings: BrokerConfig
    clock: Clock
    apis: ApiTable
    features: Mapping[str, int]
    """The level of each finalized feature."""
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
    transaction_membership: TransactionMembership
    markers: LocalMarkers
    internal_topics: InternalTopics
    controller: KafkaController
    metadata_wait: MetadataWait
    authorizer: Authorizer
    acls: AclReplica | None
    """The rules of the authorizer, if there is one that goes by rules."""
    address_of: AddressOf
    tokens: DelegationTokens | None = None
    """None without `delegation.token.secret.key`."""
