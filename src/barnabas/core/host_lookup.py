"""The address of a host that somebody named, as Java's `InetAddress.getByName` has it.

An address is its own. A name is looked up, which may take many seconds, so it is done off the loop, one name
after the other: a name server that is silent takes one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from barnabas.core.addresses import canonical_address, canonical_host, without_zone
from barnabas.core.scheduler import Background, BoundedBackground
from barnabas.core.waiting import Runner, elsewhere

HOST_NAME_CHARS_MAX = 255
"""Of the domain name system; what is longer need not be looked up."""

Resolve = Callable[[str], str]
"""The address of a name; blocks, and raises OSError or ValueError if there is none."""


class UnknownHost(Exception):
    pass


class HostLookup:
    def __init__(self, resolve: Resolve, background: Background) -> None:
        self._resolve = resolve
        self._background = BoundedBackground(background, works_max=1)

    def begin(self, host: str, found: Callable[[str], None], unknown: Callable[[], None]) -> None:
        """One of the two is called: for an address at once."""
        address = _own_address(host)
        if address is not None:
            found(address)
        else:
            self._background.submit(partial(self._look_up, host), found, lambda _: unknown())

    async def address_of(self, host: str, runner: Runner) -> str:
        """Raises UnknownHost."""
        address = _own_address(host)
        if address is not None:
            return address
        return await elsewhere(partial(self._look_up, host), self._background, runner)

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
