"""Memory accounts for state that outlives its request, by kind and by owner.

A group member or a fetch session stays when its request is answered. Each kind of such state has a
`MemoryAccount` with three limits: per connection, per principal and per broker. State is created only with a
`Reservation`, and the object that holds the state holds the reservation. The reservation ends with the last
reference to that object, so no code path can forget to give memory back. Copies that are made before a write
share one reservation until the write decides which of them lives.

No principal may have more than is left for all others together. So a few greedy principals still leave room
for the next one.

Sizes are estimates of Python objects, rounded up, not bytes of the wire.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.reporting.metrics import Metrics


class MemoryLimits(NamedTuple):
    """Limits per connection, per principal and per broker."""

    connection_bytes_max: int
    principal_bytes_max: int
    broker_bytes_max: int


class MemoryOwner(NamedTuple):
    """The client that owns the state."""

    principal: str
    connection: str
    """Connection id of the client. The same bytes count for the connection too."""


class MemoryAccount:
    """All memory of one kind. It belongs to the loop's thread."""

    def __init__(self, kind: str, limits: MemoryLimits, metrics: Metrics) -> None:
        self.kind = kind
        self.limits = limits
        self.kept_bytes = 0
        self._by_principal: dict[str, int] = {}
        self._by_connection: dict[str, int] = {}
        self._refused = metrics.counter(
            "barnabas_kept_memory_refused_total", "Requests refused because a limit was reached.", kind=kind
        )
        metrics.gauge(
            "barnabas_kept_memory_bytes",
            "Estimated memory of state that outlives its request.",
            lambda: self.kept_bytes,
            kind=kind,
        )
        metrics.gauge(
            "barnabas_kept_memory_limit_bytes",
            "The most that is kept for all clients together.",
            lambda: self.limits.broker_bytes_max,
            kind=kind,
        )
        metrics.gauge(
            "barnabas_kept_memory_principals",
            "Principals that state is kept for.",
            lambda: len(self._by_principal),
            kind=kind,
        )

    def kept_for(self, principal: str) -> int:
        return self._by_principal.get(principal, 0)

    def kept_by(self, connection: str) -> int:
        return self._by_connection.get(connection, 0)

    def reserve(self, owner: MemoryOwner, size_bytes: int) -> Reservation | None:
        """Reserve memory for new state; None if a limit is reached."""
        if self._has_room(owner, size_bytes):
            return Reservation(self, owner, size_bytes)
        self._refused.value += 1
        return None

    def claim(self, size_bytes: int) -> Reservation:
        """Count memory of state that exists already, such as state read from a log. It belongs to no client,
        and only leaves less to reserve."""
        return Reservation(self, None, size_bytes)

    def grow(self, reservation: Reservation, size_bytes: int) -> bool:
        """Grow a reservation to this size; False if a limit is reached."""
        added_bytes = size_bytes - reservation.size_bytes
        if added_bytes <= 0:
            return True
        owner = reservation.owner
        if owner is not None and not self._has_room(owner, added_bytes):
            self._refused.value += 1
            return False
        self.add(owner, added_bytes)
        reservation.size_bytes = size_bytes
        return True

    def shrink(self, reservation: Reservation, size_bytes: int) -> None:
        """Shrink a reservation to this size."""
        given_bytes = reservation.size_bytes - size_bytes
        if given_bytes > 0:
            self.add(reservation.owner, -given_bytes)
            reservation.size_bytes = size_bytes

    def _has_room(self, owner: MemoryOwner, size_bytes: int) -> bool:
        limits = self.limits
        left_bytes = limits.broker_bytes_max - self.kept_bytes - size_bytes
        return (
            self.kept_for(owner.principal) + size_bytes <= min(limits.principal_bytes_max, left_bytes)
            and self.kept_by(owner.connection) + size_bytes <= limits.connection_bytes_max
        )

    def add(self, owner: MemoryOwner | None, size_bytes: int) -> None:
        """For reservations: `size_bytes` more, or with a negative number fewer."""
        self.kept_bytes += size_bytes
        if owner is not None:
            _add(self._by_principal, owner.principal, size_bytes)
            _add(self._by_connection, owner.connection, size_bytes)


class Reservation:
    """Memory of one owner for as long as this object lives, or until it is released."""

    __slots__ = ("_account", "owner", "size_bytes")

    def __init__(self, account: MemoryAccount, owner: MemoryOwner | None, size_bytes: int) -> None:
        self._account = account
        self.owner = owner
        self.size_bytes = size_bytes
        account.add(owner, size_bytes)

    def release(self) -> None:
        size_bytes, self.size_bytes = self.size_bytes, 0
        if size_bytes:
            self._account.add(self.owner, -size_bytes)

    def __del__(self) -> None:
        self.release()


def _add(table: dict[str, int], name: str, size_bytes: int) -> None:
    left = table.get(name, 0) + size_bytes
    if left:
        table[name] = left
    else:
        table.pop(name, None)
