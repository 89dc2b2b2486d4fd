"""Broker endpoints as a client can reach them.

A client keeps only the endpoints that brokers return. Those are wrong when the broker is behind a port
mapping of a container or a proxy. So, unless `advertised.listeners` is set, a broker returns the address on
which this client reached it. A listener that has a host name returns the name, as Apache Kafka does:
certificates and Kerberos tickets are issued for names. Other brokers are returned with the endpoint that they
registered for the same listener.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.network.transport.exchange import ExchangeConnection
from barnabas.requests.services import Services

_MAPPED_IPV4 = "::ffff:"


class Node(NamedTuple):
    broker_id: int
    endpoint: Endpoint
    rack: str | None


def endpoint_of(broker: Services, broker_id: int, connection: ExchangeConnection) -> Node | None:
    """Endpoint of a live broker for the client on `connection`; None if the broker has no such listener."""
    registered = broker.metadata.broker(broker_id)
    if registered is None:
        return None
    if broker_id == broker.broker_id:
        return Node(broker_id, _own_endpoint(broker, connection), registered.rack)
    endpoint = broker.metadata.endpoint(broker_id, connection.listener_name)
    if endpoint is None:
        return None
    return Node(broker_id, endpoint, registered.rack)


def live_endpoints(broker: Services, connection: ExchangeConnection) -> list[Node]:
    """Endpoints of all live brokers that the client on `connection` can reach."""
    found = (endpoint_of(broker, each.id, connection) for each in broker.metadata.brokers())
    return [endpoint for endpoint in found if endpoint is not None]


def _own_endpoint(broker: Services, connection: ExchangeConnection) -> Endpoint:
    advertised = broker.config.advertised_listeners.get(connection.listener_name)
    if advertised is not None:
        return advertised.endpoint
    registered = broker.metadata.endpoint(broker.broker_id, connection.listener_name)
    if registered is not None and _is_name(registered.host):
        return registered
    return Endpoint(connection.local_host.removeprefix(_MAPPED_IPV4), connection.local_port)


def _is_name(host: str) -> bool:
    """Neither an IP address nor the empty host, which means every address."""
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return bool(host)
    return False
