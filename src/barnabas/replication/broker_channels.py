"""Channels to the other brokers of the cluster, found through the metadata cache."""

from __future__ import annotations

import ssl

from barnabas.client.channel import Address, Channel
from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.core.errors import BrokerNotAvailable
from barnabas.core.ids import BrokerId
from barnabas.replication.replica_fetcher import Connect


def connect_through(
    metadata: MetadataCache,
    listener_name: str,
    *,
    client_id: str,
    timeout_ms: float,
    tls: ssl.SSLContext | None = None,
) -> Connect:
    """What a replica manager takes as `connect`: brokers reach each other on `listener_name`."""

    async def connect(broker_id: BrokerId) -> Channel:
        endpoint = metadata.endpoint(broker_id, listener_name)
        if endpoint is None:
            raise BrokerNotAvailable(f"broker {broker_id} has no listener {listener_name} that we know of")
        return await Channel.connect(
            Address(endpoint.host, endpoint.port),
            client_id=client_id,
            connect_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            tls=tls,
        )

    return connect
