"""Served APIs and versions.

The broker serves every API that has messages, in all their versions but the oldest of a few. ApiVersions is
answered from this table. It needs no handler, so that a client's first request does not wait until sixty of
them are imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from barnabas.protocol.api_keys import ApiKey

OLDEST_SERVED: Mapping[ApiKey, int] = MappingProxyType(
    {
        ApiKey.CREATE_TOPICS: 2,
        ApiKey.DELETE_TOPICS: 1,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
        ApiKey.WRITE_TXN_MARKERS: 1,
        ApiKey.ALTER_REPLICA_LOG_DIRS: 1,
        ApiKey.DESCRIBE_LOG_DIRS: 1,
        ApiKey.CREATE_DELEGATION_TOKEN: 1,
        ApiKey.RENEW_DELEGATION_TOKEN: 1,
        ApiKey.EXPIRE_DELEGATION_TOKEN: 1,
        ApiKey.DESCRIBE_DELEGATION_TOKEN: 1,
    }
)
"""Oldest served version of APIs whose earlier versions Kafka 4 removed; 0 for all others."""

SERVED_VERSIONS: Mapping[ApiKey, range] = MappingProxyType(
    {key: key.versions[OLDEST_SERVED.get(key, 0) :] for key in ApiKey if key.versions}
)

BETWEEN_BROKERS = frozenset(
    {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
)
"""Sent by the controller or by a broker that shuts down; clients never send them."""
