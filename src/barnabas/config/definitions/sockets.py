"""Listeners, sockets and connections."""

from __future__ import annotations

from barnabas.config.definitions.keys import Key, at_least, one_of
from barnabas.config.definitions.shorthand import (
    CLUSTER_WIDE,
    INT,
    KIB,
    LONG,
    MIB,
    MINUTE_MS,
    NO_EFFECT,
    READ_ONLY,
    SECOND_MS,
    STRING,
)
from barnabas.core.addressing.endpoints import SECURITY_PROTOCOLS
from barnabas.core.integers import INT_MAX


def connection_overrides(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides` by host, as it is written."""
    found: dict[str, int] = {}
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        host, _, count = entry.rpartition(":")
        if not host or not count.isdecimal():
            raise ValueError(f"{entry!r} is not of the form HOST:COUNT")
        found[host.strip("[]")] = int(count)
    return found


class ConnectionCounts:
    def __call__(self, value: str) -> None:
        connection_overrides(value)

    def describe(self) -> str:
        return "[host]:[count],[host]:[count],..."


LISTENERS: tuple[Key, ...] = (
    Key("listeners", STRING, "PLAINTEXT://127.0.0.1:9092", None, READ_ONLY,
        "Addresses to listen on: NAME://HOST:PORT, separated by commas. An empty host is every interface,"
        " an IPv6 host stands in brackets, port 0 takes a free one. Apache Kafka listens on every interface"
        " by default; this broker listens on the loopback interface. Apache Kafka can change"
        " it while it runs; here it holds from the next start."),
    Key("advertised.listeners", STRING, None, None, READ_ONLY,
        "The addresses that clients receive. A listener that is not named here is advertised with its own"
        " name, if `listeners` gives it one. Otherwise its address is the one on which the client arrived,"
        " which is right for containers and proxies too. Apache Kafka can change it while it runs; here it"
        " holds from the next start."),
    Key("listener.security.protocol.map", STRING,
        ",".join(f"{name}:{name}" for name in SECURITY_PROTOCOLS), None, READ_ONLY,
        "The security protocol of each listener name: NAME:PROTOCOL, separated by commas. Apache Kafka can"
        " change it while it runs; here it holds from the next start."),
    Key("inter.broker.listener.name", STRING, None,
        doc="The listener for connections between brokers; unset means the one whose name is"
        " `security.inter.broker.protocol`."),
    Key("security.inter.broker.protocol", STRING, "PLAINTEXT", one_of(*SECURITY_PROTOCOLS),
        doc="The security protocol between brokers, when `inter.broker.listener.name` is unset."),
    Key("control.plane.listener.name", STRING, None,
        doc="A separate listener for requests of the controller."),
)  # fmt: skip

SOCKETS: tuple[Key, ...] = (
    Key("socket.send.buffer.bytes", INT, 100 * KIB, at_least(-1),
        doc="SO_SNDBUF of client connections, if given; else, or if -1, the operating system adapts it."),
    Key("socket.receive.buffer.bytes", INT, 100 * KIB, at_least(-1),
        doc="SO_RCVBUF of client connections, if given; else, or if -1, the operating system adapts it."),
    Key("socket.request.max.bytes", INT, 100 * MIB, at_least(1),
        doc="A request that claims to be larger closes its connection before anything is allocated."),
    Key("socket.listen.backlog.size", INT, 50, at_least(1),
        doc="Connections that may wait to be accepted."),
    Key("socket.connection.setup.timeout.ms", LONG, 10 * SECOND_MS, at_least(1),
        doc="The longest that the opening of a connection to another broker takes."),
    Key("socket.connection.setup.timeout.max.ms", LONG, 30 * SECOND_MS, at_least(1),
        doc=NO_EFFECT + "That time does not grow."),
)  # fmt: skip

CONNECTIONS: tuple[Key, ...] = (
    Key("max.connections", INT, INT_MAX, at_least(0), CLUSTER_WIDE,
        "Connections over all listeners; a listener may have its own limit beside it"
        " (`listener.name.<name>.max.connections`). One that only brokers use is exempt."),
    Key("max.connections.per.ip", INT, INT_MAX, at_least(0), CLUSTER_WIDE,
        "Connections from one address; 0 admits only those named in `max.connections.per.ip.overrides`."),
    Key("max.connections.per.ip.overrides", STRING, "", ConnectionCounts(), CLUSTER_WIDE,
        "Other limits for single addresses: HOST:COUNT, separated by commas. A host is an address in any"
        " spelling, or a name, which is looked up at the start and when this changes."),
    Key("max.connection.creation.rate", INT, INT_MAX, at_least(0), CLUSTER_WIDE,
        "New connections a second; above it others wait to be accepted. A listener may have its own rate"
        " beside it (`listener.name.<name>.max.connection.creation.rate`). One that only brokers use is"
        " exempt."),
    Key("connections.max.idle.ms", LONG, 10 * MINUTE_MS,
        doc="A connection that is silent for this long is closed; a negative number disables it."),
    Key("connection.failed.authentication.delay.ms", INT, 100, at_least(0),
        doc="The delay of the answer to a failed authentication, against guessing."),
)  # fmt: skip
