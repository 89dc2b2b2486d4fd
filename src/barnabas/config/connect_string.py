"""ZooKeeper connect string `host:port,host:port/chroot`."""

from __future__ import annotations

import re
from typing import NamedTuple

from barnabas.core.addressing.endpoints import PORT_MAX
from barnabas.core.errors import InvalidConfig

DEFAULT_PORT = 2181

ZNODE_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^/\0]+)+", re.DOTALL)
"""Names between slashes; `.` and `..` are not names."""


class ConnectString(NamedTuple):
    hosts: tuple[str, ...]
    """Each as HOST:PORT, with an IPv6 address in brackets."""
    chroot: str
    """Without a slash at its end; empty for the whole tree."""

    @classmethod
    def parse(cls, text: str) -> ConnectString:
        """Parse the text; INVALID_CONFIG names the fault."""
        addresses, slash, path = text.strip().partition("/")
        chroot = f"{slash}{path}".rstrip("/")
        if chroot and not ZNODE_PATH.fullmatch(chroot):
            raise InvalidConfig(f"{chroot!r} in {text!r} is not a path in ZooKeeper")
        hosts = tuple(_with_port(address.strip(), text) for address in addresses.split(","))
        return cls(hosts, chroot)

    def __str__(self) -> str:
        return ",".join(self.hosts) + self.chroot


def _with_port(address: str, text: str) -> str:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(DEFAULT_PORT)
    is_bare_ipv6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not host or is_bare_ipv6 or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
        raise InvalidConfig(f"{address!r} in {text!r} is not of the form HOST:PORT")
    return f"{host}:{port}"
