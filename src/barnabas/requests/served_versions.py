"""Which APIs are served, in which versions.

What is not in this table is neither served nor advertised. It stands by itself because ApiVersions is
answered from it: a client asks for that first, and need not wait until sixty handlers are imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from barnabas.protocol.api_keys import ApiKey

SERVED_VERSIONS: Mapping[ApiKey, range] = MappingProxyType(
    {
        ApiKey.PRODUCE: range(14),
        ApiKey.FETCH: range(19),
        ApiKey.LIST_OFFSETS: range(12),
        ApiKey.METADATA: range(14),
        ApiKey.LEADER_AND_ISR: range(8),
        ApiKey.STOP_REPLICA: range(5),
        ApiKey.UPDATE_METADATA: range(9),
        ApiKey.CONTROLLED_SHUTDOWN: range(4),
        ApiKey.OFFSET_COMMIT: range(11),
        ApiKey.OFFSET_FETCH: range(11),
        ApiKey.FIND_COORDINATOR: range(7),
        ApiKey.JOIN_GROUP: range(10),
        ApiKey.HEARTBEAT: range(5),
        ApiKey.LEAVE_GROUP: range(6),
        ApiKey.SYNC_GROUP: range(6),
        ApiKey.DESCRIBE_GROUPS: range(7),
        ApiKey.LIST_GROUPS: range(6),
        ApiKey.SASL_HANDSHAKE: range(2),
        ApiKey.API_VERSIONS: range(6),
        ApiKey.CREATE_TOPICS: range(2, 8),
        ApiKey.DELETE_TOPICS: range(1, 7),
        ApiKey.DELETE_RECORDS: range(3),
        ApiKey.INIT_PRODUCER_ID: range(6),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: range(2, 5),
        ApiKey.ADD_PARTITIONS_TO_TXN: range(6),
        ApiKey.ADD_OFFSETS_TO_TXN: range(5),
        ApiKey.END_TXN: range(6),
        ApiKey.WRITE_TXN_MARKERS: range(1, 3),
        ApiKey.TXN_OFFSET_COMMIT: range(7),
        ApiKey.DESCRIBE_ACLS: range(4),
        ApiKey.CREATE_ACLS: range(4),
        ApiKey.DELETE_ACLS: range(4),
        ApiKey.DESCRIBE_CONFIGS: range(5),
        ApiKey.ALTER_CONFIGS: range(3),
        ApiKey.ALTER_REPLICA_LOG_DIRS: range(1, 3),
        ApiKey.DESCRIBE_LOG_DIRS: range(1, 6),
        ApiKey.SASL_AUTHENTICATE: range(3),
        ApiKey.CREATE_PARTITIONS: range(4),
        ApiKey.CREATE_DELEGATION_TOKEN: range(1, 4),
        ApiKey.RENEW_DELEGATION_TOKEN: range(1, 3),
        ApiKey.EXPIRE_DELEGATION_TOKEN: range(1, 3),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: range(1, 4),
        ApiKey.DELETE_GROUPS: range(4),
        ApiKey.ELECT_LEADERS: range(3),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: range(2),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: range(2),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: range(1),
        ApiKey.OFFSET_DELETE: range(1),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: range(2),
        ApiKey.ALTER_CLIENT_QUOTAS: range(2),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: range(1),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: range(1),
        ApiKey.DESCRIBE_CLUSTER: range(3),
        ApiKey.DESCRIBE_PRODUCERS: range(1),
        ApiKey.DESCRIBE_TRANSACTIONS: range(1),
        ApiKey.LIST_TRANSACTIONS: range(3),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: range(2),
        ApiKey.CONSUMER_GROUP_DESCRIBE: range(2),
        ApiKey.LIST_CONFIG_RESOURCES: range(2),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: range(1),
    }
)

BETWEEN_BROKERS = frozenset(
    {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
)
"""Sent by the controller or by a broker that leaves; clients have no use for them."""
