"""Host name lookup off the event loop, like Java's `InetAddress.getByName`.

A textual address needs no lookup. A lookup may take many seconds, so names are looked up in a thread, one
after the other: a silent name server takes one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from barnabas.core.addressing.addresses import canonical_address, canonical_host, without_zone
from barnabas.core.scheduler import Background, BoundedBackground
from barnabas.core.waiting import elsewhere

HOST_NAME_CHARS_MAX = 255
"""Limit of the domain name system; a longer name cannot exist."""

Resolve = Callable[[str], str]
"""Address of a name; blocks, and raises OSError or ValueError if there is none."""


class UnknownHost(Exception):
    pass


class HostLookup:
    def __init__(self, resolve: Resolve, background: Background) -> None:
        self._resolve = resolve
        self._background = BoundedBackground(background, works_max=1)

    def begin(self, host: str, found: Callable[[str], None], unknown: Callable[[], None]) -> None:
        """Call one of the two: at once for an address, after the lookup for a name."""
        address = _own_address(host)
        if address is not None:
            found(address)
        else:
            self._background.submit(partial(self._look_up, host), found, lambda _: unknown())

    async def address_of(self, host: str) -> str:
        """Raises UnknownHost."""
        address = _own_address(host)
        if address is not None:
            return address
        return await elsewhere(partial(self._look_up, host), self._background)

    def _look_up(self, host: str) -> str:
        if len(host) > HOST_NAME_CHARS_MAX:
            raise UnknownHost
        try:
            return without_zone(canonical_host(self._resolve(host)))
        except (OSError, ValueError) as error:
            raise UnknownHost from error


def _own_address(host: str) -> str | None:
    address = canonical_address(host)
    return None if address is None else without_zone(address)
