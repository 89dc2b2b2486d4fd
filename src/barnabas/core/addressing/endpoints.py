"""Endpoint of a host and a port, and a broker's endpoint under its listener name."""

from __future__ import annotations

from typing import NamedTuple

PORT_MAX = 65_535
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""In the order of their numbers on the wire."""


class Endpoint(NamedTuple):
    host: str
    """An IPv6 address has no brackets here. An empty host binds to every interface."""
    port: int
    """Port 0 binds to any free port."""

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """`HOST:PORT`, with an IPv6 host in brackets; ValueError names the fault."""
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
    """An endpoint of a broker. Brokers match endpoints by listener name; two listeners may share a security
    protocol."""

    listener_name: str
    endpoint: Endpoint
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.listener_name}://{self.endpoint}"
