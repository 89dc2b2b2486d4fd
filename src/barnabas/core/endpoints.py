"""A host and a port; and a broker's endpoint, which goes by the name of a listener."""

from __future__ import annotations

from typing import NamedTuple

PORT_MAX = 65_535


class Endpoint(NamedTuple):
    host: str
    """An IPv6 address without its brackets. To bind to, empty means every interface."""
    port: int
    """To bind to, 0 means any that is free."""

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """`HOST:PORT`, with an IPv6 host in brackets; ValueError says what is wrong."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
            raise ValueError(f"{text!r} is not of the form HOST:PORT")
        host = host.removeprefix("[").removesuffix("]")
        if not host:
            raise ValueError(f"{text!r} names no host")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ListenerEndpoint(NamedTuple):
    """An endpoint of a broker. Brokers speak of the same kind of endpoint by the listener's name; two
    listeners may share a security protocol."""

    listener_name: str
    endpoint: Endpoint
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.listener_name}://{self.endpoint}"
