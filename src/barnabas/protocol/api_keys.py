"""API keys of the Kafka protocol, with the versions of each API's messages.

The keys are all of Apache Kafka's; not every one has messages here. Those of KRaft's quorum and of share
groups have none. A message class is found by its name: `ApiKey.LIST_OFFSETS` has
`ListOffsetsRequest` in `messages.list_offsets`, which is imported at its first use.

A row holds the number, the versions of the messages and the first flexible version. The message classes,
`requests.served_versions` and with it the ApiVersions response take the versions from here. The first
flexible version decides the form of the request header. A broker reads the header before it knows the body,
even in a version that it does not support.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

NEVER_FLEXIBLE = 0x8000
"""Above every version there can be."""


class ApiKey(IntEnum):
    """Number of an API; with the versions and the first flexible version of those that have messages here."""

    _value_: int
    versions: range
    flexible_since: int | None

    def __new__(cls, number: int, versions: str = "", flexible_since: int | None = None) -> Self:
        key = int.__new__(cls, number)
        key._value_ = number
        first, _, last = versions.partition("-")
        key.versions = range(int(first), int(last or first) + 1) if versions else range(0)
        key.flexible_since = flexible_since
        return key

    PRODUCE = 0, "0-13", 9
    FETCH = 1, "0-18", 12
    LIST_OFFSETS = 2, "0-11", 6
    METADATA = 3, "0-13", 9
    LEADER_AND_ISR = 4, "0-7", 4
    STOP_REPLICA = 5, "0-4", 2
    UPDATE_METADATA = 6, "0-8", 6
    CONTROLLED_SHUTDOWN = 7, "0-3", 3
    OFFSET_COMMIT = 8, "0-10", 8
    OFFSET_FETCH = 9, "0-10", 6
    FIND_COORDINATOR = 10, "0-6", 3
    JOIN_GROUP = 11, "0-9", 6
    HEARTBEAT = 12, "0-4", 4
    LEAVE_GROUP = 13, "0-5", 4
    SYNC_GROUP = 14, "0-5", 4
    DESCRIBE_GROUPS = 15, "0-6", 5
    LIST_GROUPS = 16, "0-5", 3
    SASL_HANDSHAKE = 17, "0-1", NEVER_FLEXIBLE
    API_VERSIONS = 18, "0-5", 3
    CREATE_TOPICS = 19, "0-7", 5
    DELETE_TOPICS = 20, "0-6", 4
    DELETE_RECORDS = 21, "0-2", 2
    INIT_PRODUCER_ID = 22, "0-5", 2
    OFFSET_FOR_LEADER_EPOCH = 23, "0-4", 4
    ADD_PARTITIONS_TO_TXN = 24, "0-5", 3
    ADD_OFFSETS_TO_TXN = 25, "0-4", 3
    END_TXN = 26, "0-5", 3
    WRITE_TXN_MARKERS = 27, "0-2", 1
    TXN_OFFSET_COMMIT = 28, "0-6", 3
    DESCRIBE_ACLS = 29, "0-3", 2
    CREATE_ACLS = 30, "0-3", 2
    DELETE_ACLS = 31, "0-3", 2
    DESCRIBE_CONFIGS = 32, "0-4", 4
    ALTER_CONFIGS = 33, "0-2", 2
    ALTER_REPLICA_LOG_DIRS = 34, "0-2", 2
    DESCRIBE_LOG_DIRS = 35, "0-5", 2
    SASL_AUTHENTICATE = 36, "0-2", 2
    CREATE_PARTITIONS = 37, "0-3", 2
    CREATE_DELEGATION_TOKEN = 38, "0-3", 2
    RENEW_DELEGATION_TOKEN = 39, "0-2", 2
    EXPIRE_DELEGATION_TOKEN = 40, "0-2", 2
    DESCRIBE_DELEGATION_TOKEN = 41, "0-3", 2
    DELETE_GROUPS = 42, "0-3", 2
    ELECT_LEADERS = 43, "0-2", 2
    INCREMENTAL_ALTER_CONFIGS = 44, "0-1", 1
    ALTER_PARTITION_REASSIGNMENTS = 45, "0-1", 0
    LIST_PARTITION_REASSIGNMENTS = 46, "0", 0
    OFFSET_DELETE = 47, "0", NEVER_FLEXIBLE
    DESCRIBE_CLIENT_QUOTAS = 48, "0-1", 1
    ALTER_CLIENT_QUOTAS = 49, "0-1", 1
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, "0", 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, "0", 0
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60, "0-2", 0
    DESCRIBE_PRODUCERS = 61, "0", 0
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65, "0", 0
    LIST_TRANSACTIONS = 66, "0-2", 0
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68, "0-1", 0
    CONSUMER_GROUP_DESCRIBE = 69, "0-1", 0
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71, "0", 0
    PUSH_TELEMETRY = 72, "0", 0
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74, "0-1", 0
    DESCRIBE_TOPIC_PARTITIONS = 75, "0", 0
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    @property
    def camel_name(self) -> str:
        """Kafka's own spelling: `ListOffsets`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


FLEXIBLE_SINCE: dict[int, int] = {key: key.flexible_since for key in ApiKey if key.flexible_since is not None}
"""First version whose header has tagged fields, by API key. Every key here has messages."""
