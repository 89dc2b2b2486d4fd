"""One form for each address, so that whoever is meant by one spelling is met under any other.

`::1` is also `0:0:0:0:0:0:0:1`, which is how Java writes it and so how Apache Kafka's rules have it. Peers
have the canonical form from the moment they are accepted; a rule, a quota or a setting that names an address
is compared by it, and shown as it was written.
"""

from __future__ import annotations

import ipaddress


def canonical_address(text: str) -> str | None:
    """None for what is no address. An IPv4 address inside of an IPv6 one (`::ffff:127.0.0.1`) counts as
    itself, and `010.0.0.1` is decimal, as in Java."""
    try:
        if ":" not in text:
            parts = [part.lstrip("0") or part[:1] for part in text.split(".")]
            return str(ipaddress.IPv4Address(".".join(parts)))
        address = ipaddress.IPv6Address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    return str(address.ipv4_mapped or address)


def canonical_host(text: str) -> str:
    """Of a name, which has no other form, itself."""
    return canonical_address(text) or text


def without_zone(host: str) -> str:
    """`fe80::1%eth0` names the link on which that address is; limits count the address on any of them."""
    return host.partition("%")[0]
