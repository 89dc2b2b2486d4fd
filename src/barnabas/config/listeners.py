"""Listeners: bound and advertised addresses, and the settings of a single listener.

A listener is `NAME://HOST:PORT`. A map gives the security protocol for its name. Settings for one listener
have the prefix `listener.name.<name>.`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from barnabas.core.addressing.endpoints import PORT_MAX, SECURITY_PROTOCOLS, Endpoint, ListenerEndpoint
from barnabas.core.errors import InvalidConfig

_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<bracketed>[^\]]*)\]|(?P<host>[^:\[\]/]*)):(?P<port>\d+)"
)


def parse_protocol_map(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,…`; names are case-insensitive, as in Kafka."""
    found: dict[str, str] = {}
    for entry in _entries(text):
        name, colon, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not colon or not name:
            raise InvalidConfig(f"listener.security.protocol.map: {entry!r} is not of the form NAME:PROTOCOL")
        if protocol not in SECURITY_PROTOCOLS:
            raise InvalidConfig(
                f"listener.security.protocol.map: {protocol!r} is not a security protocol; there are"
                f" {', '.join(SECURITY_PROTOCOLS)}"
            )
        if name in found:
            raise InvalidConfig(f"listener.security.protocol.map: {name} is named twice")
        found[name] = protocol
    return found


def parse_listeners(key: str, text: str, protocols: Mapping[str, str]) -> tuple[ListenerEndpoint, ...]:
    """The listeners of `text`, the value of `key`."""
    listeners = tuple(_parse_listener(key, entry, protocols) for entry in _entries(text))
    if not listeners:
        raise InvalidConfig(f"{key} names no listener; it takes NAME://HOST:PORT, separated by commas")
    names = [listener.listener_name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise InvalidConfig(f"{key}: the listener name {name} is used twice")
    return listeners


def check_distinct_ports(listeners: tuple[ListenerEndpoint, ...]) -> None:
    """Two listeners cannot bind to one port, unless on different addresses."""
    for index, listener in enumerate(listeners):
        for other in listeners[:index]:
            (host, port), (other_host, other_port) = listener.endpoint, other.endpoint
            overlap = host == other_host or not host or not other_host
            if overlap and port == other_port != 0:
                raise InvalidConfig(f"listeners: {other} and {listener} use the same port")


def for_listener(
    values: Mapping[str, Any], listener_name: str, key: str, mechanism: str | None = None
) -> Any:
    """The value of `key` on one listener: its own if it has one, else the broker's."""
    prefix = f"listener.name.{listener_name.lower()}."
    if mechanism is not None:
        own = f"{prefix}{mechanism.lower()}.{key}"
        if own in values:
            return values[own]
    return values.get(prefix + key, values[key])


def of_listener_alone(values: Mapping[str, Any], listener_name: str, key: str) -> int | None:
    """Setting of one listener, without the setting for all of them; None if it has none."""
    return values.get(f"listener.name.{listener_name.lower()}.{key}")


def _parse_listener(key: str, entry: str, protocols: Mapping[str, str]) -> ListenerEndpoint:
    match = _LISTENER.fullmatch(entry)
    if match is None:
        raise InvalidConfig(
            f"{key}: {entry!r} is not of the form NAME://HOST:PORT (an IPv6 host in brackets, an empty"
            " host for every interface)"
        )
    name, port = match["name"].upper(), int(match["port"])
    if port > PORT_MAX:
        raise InvalidConfig(f"{key}: {entry!r} has port {port}, the largest is {PORT_MAX}")
    protocol = protocols.get(name)
    if protocol is None:
        raise InvalidConfig(
            f"{key}: the listener name {name} has no security protocol; add {name}:PLAINTEXT (or another) to"
            " listener.security.protocol.map"
        )
    host = match["bracketed"] if match["bracketed"] is not None else match["host"]
    return ListenerEndpoint(name, Endpoint(host, port), protocol)


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]
