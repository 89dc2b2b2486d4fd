"""Under which address a client finds a broker.

A client keeps only the addresses that brokers tell it, and those are wrong as soon as the
broker sits behind a container's port mapping or a proxy. So unless `advertised.listeners`
says otherwise, a broker answers with the address on which the client has just reached it.
A listener that was given a name is told by its name, as Apache Kafka does: a certificate and
a ticket of Kerberos are for names. Other brokers are found under what they registered for the
same listener.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from barnabas.core.endpoints import Endpoint
from barnabas.network.exchange import ExchangeConnection
from barnabas.requests.services import Services

_MAPPED_IPV4 = "::ffff:"


class Node(NamedTuple):
    broker_id: int
    endpoint: Endpoint
    rack: str | None


def endpoint_of(broker: Services, broker_id: int, connection: ExchangeConnection) -> Node | None:
    """The address of any live broker, for the client on `connection`; None if it has none there."""
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
    """Every live broker that the client on `connection` can reach."""
    found = (endpoint_of(broker, each.id, connection) for each in broker.metadata.brokers())
    return [endpoint for endpoint in found if endpoint is not None]


def _own_endpoint(broker: Services, connection: ExchangeConnection) -> Endpoint:
    advertised = broker.settings.advertised_listeners.get(connection.listener_name)
    if advertised is not None:
        return advertised.endpoint
    registered = broker.metadata.endpoint(broker.broker_id, connection.listener_name)
    if registered is not None and _is_name(registered.host):
        return registered
    return Endpoint(connection.local_host.removeprefix(_MAPPED_IPV4), connection.local_port)


def _is_name(host: str) -> bool:
    """Neither an address nor nothing, which means every address."""
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return bool(host)
    return False
