"""What the broker answers: one file per API, no sockets.

The directory listing is the API table. Each file opens with the API's key, its versions and its gaps, and
ends with the `Api` row that registers it. What is not in the table below is neither served nor advertised.
Where the coordination store is this broker's own, nobody else gives orders, and only what is for clients is
served.
"""

from __future__ import annotations

from barnabas.handlers.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from barnabas.handlers.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from barnabas.handlers.alter_client_quotas import ALTER_CLIENT_QUOTAS
from barnabas.handlers.alter_configs import ALTER_CONFIGS
from barnabas.handlers.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from barnabas.handlers.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from barnabas.handlers.alter_user_scram_credentials import ALTER_USER_SCRAM_CREDENTIALS
from barnabas.handlers.api_versions import API_VERSIONS
from barnabas.handlers.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from barnabas.handlers.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from barnabas.handlers.controlled_shutdown import CONTROLLED_SHUTDOWN
from barnabas.handlers.create_acls import CREATE_ACLS
from barnabas.handlers.create_delegation_token import CREATE_DELEGATION_TOKEN
from barnabas.handlers.create_partitions import CREATE_PARTITIONS
from barnabas.handlers.create_topics import CREATE_TOPICS
from barnabas.handlers.delete_acls import DELETE_ACLS
from barnabas.handlers.delete_groups import DELETE_GROUPS
from barnabas.handlers.delete_records import DELETE_RECORDS
from barnabas.handlers.delete_topics import DELETE_TOPICS
from barnabas.handlers.describe_acls import DESCRIBE_ACLS
from barnabas.handlers.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from barnabas.handlers.describe_cluster import DESCRIBE_CLUSTER
from barnabas.handlers.describe_configs import DESCRIBE_CONFIGS
from barnabas.handlers.describe_delegation_token import DESCRIBE_DELEGATION_TOKEN
from barnabas.handlers.describe_groups import DESCRIBE_GROUPS
from barnabas.handlers.describe_log_dirs import DESCRIBE_LOG_DIRS
from barnabas.handlers.describe_producers import DESCRIBE_PRODUCERS
from barnabas.handlers.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from barnabas.handlers.describe_transactions import DESCRIBE_TRANSACTIONS
from barnabas.handlers.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from barnabas.handlers.elect_leaders import ELECT_LEADERS
from barnabas.handlers.end_txn import END_TXN
from barnabas.handlers.expire_delegation_token import EXPIRE_DELEGATION_TOKEN
from barnabas.handlers.fetch import FETCH
from barnabas.handlers.find_coordinator import FIND_COORDINATOR
from barnabas.handlers.heartbeat import HEARTBEAT
from barnabas.handlers.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from barnabas.handlers.init_producer_id import INIT_PRODUCER_ID
from barnabas.handlers.join_group import JOIN_GROUP
from barnabas.handlers.leader_and_isr import LEADER_AND_ISR
from barnabas.handlers.leave_group import LEAVE_GROUP
from barnabas.handlers.list_config_resources import LIST_CONFIG_RESOURCES
from barnabas.handlers.list_groups import LIST_GROUPS
from barnabas.handlers.list_offsets import LIST_OFFSETS
from barnabas.handlers.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from barnabas.handlers.list_transactions import LIST_TRANSACTIONS
from barnabas.handlers.metadata import METADATA
from barnabas.handlers.offset_commit import OFFSET_COMMIT
from barnabas.handlers.offset_delete import OFFSET_DELETE
from barnabas.handlers.offset_fetch import OFFSET_FETCH
from barnabas.handlers.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from barnabas.handlers.produce import PRODUCE
from barnabas.handlers.renew_delegation_token import RENEW_DELEGATION_TOKEN
from barnabas.handlers.sasl_authenticate import SASL_AUTHENTICATE
from barnabas.handlers.sasl_handshake import SASL_HANDSHAKE
from barnabas.handlers.stop_replica import STOP_REPLICA
from barnabas.handlers.sync_group import SYNC_GROUP
from barnabas.handlers.txn_offset_commit import TXN_OFFSET_COMMIT
from barnabas.handlers.update_metadata import UPDATE_METADATA
from barnabas.handlers.write_txn_markers import WRITE_TXN_MARKERS
from barnabas.requests.registry import ApiTable

APIS = ApiTable(
    (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        LEADER_AND_ISR,
        STOP_REPLICA,
        UPDATE_METADATA,
        CONTROLLED_SHUTDOWN,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        SASL_HANDSHAKE,
        API_VERSIONS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        DELETE_RECORDS,
        INIT_PRODUCER_ID,
        OFFSET_FOR_LEADER_EPOCH,
        ADD_PARTITIONS_TO_TXN,
        ADD_OFFSETS_TO_TXN,
        END_TXN,
        WRITE_TXN_MARKERS,
        TXN_OFFSET_COMMIT,
        DESCRIBE_ACLS,
        CREATE_ACLS,
        DELETE_ACLS,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        ALTER_REPLICA_LOG_DIRS,
        DESCRIBE_LOG_DIRS,
        SASL_AUTHENTICATE,
        CREATE_PARTITIONS,
        CREATE_DELEGATION_TOKEN,
        RENEW_DELEGATION_TOKEN,
        EXPIRE_DELEGATION_TOKEN,
        DESCRIBE_DELEGATION_TOKEN,
        DELETE_GROUPS,
        ELECT_LEADERS,
        INCREMENTAL_ALTER_CONFIGS,
        ALTER_PARTITION_REASSIGNMENTS,
        LIST_PARTITION_REASSIGNMENTS,
        OFFSET_DELETE,
        DESCRIBE_CLIENT_QUOTAS,
        ALTER_CLIENT_QUOTAS,
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        ALTER_USER_SCRAM_CREDENTIALS,
        DESCRIBE_CLUSTER,
        DESCRIBE_PRODUCERS,
        DESCRIBE_TRANSACTIONS,
        LIST_TRANSACTIONS,
        CONSUMER_GROUP_HEARTBEAT,
        CONSUMER_GROUP_DESCRIBE,
        LIST_CONFIG_RESOURCES,
        DESCRIBE_TOPIC_PARTITIONS,
    )
)
"""The table that the dispatcher reads, in the order of the keys."""
