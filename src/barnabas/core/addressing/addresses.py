"""Canonical form of IP addresses, so that different spellings compare equal.

`::1` is also `0:0:0:0:0:0:0:1`, which is Java's spelling and so the one in Apache Kafka's ACLs. The broker
canonicalizes a peer's address when it accepts the connection. A rule, a quota or a setting compares by the
canonical form, and is shown as it was written.
"""

from __future__ import annotations

import ipaddress


def canonical_address(text: str) -> str | None:
    """None for text without an address. An IPv4-mapped IPv6 address (`::ffff:127.0.0.1`) is the IPv4 address,
    and `010.0.0.1` is decimal, as in Java."""
    try:
        if ":" not in text:
            parts = [part.lstrip("0") or part[:1] for part in text.split(".")]
            return str(ipaddress.IPv4Address(".".join(parts)))
        address = ipaddress.IPv6Address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    return str(address.ipv4_mapped or address)


def canonical_host(text: str) -> str:
    """The canonical form of an address; a host name is unchanged."""
    return canonical_address(text) or text


def without_zone(host: str) -> str:
    """Strip the zone: `fe80::1%eth0` also names a link, and limits count the address on all links."""
    return host.partition("%")[0]
