"""Member of a classic group: its metadata, and its waiting request."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from barnabas.coordinator.runtime.decision import Waiter
from barnabas.core.bounds.kept_memory import Reservation
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse

Protocols = tuple[tuple[str, bytes], ...]
"""Assignment strategies of a member, its favourite first, each with the member's metadata (for consumers:
their subscription)."""

NOT_GIVEN = -1


class NamedProtocol(Protocol):
    """Protocol in a request or in a record."""

    name: str
    metadata: bytes


JoinWaiter = Waiter[JoinGroupResponse]
SyncWaiter = Waiter[SyncGroupResponse]


class ClassicMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "memory",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "waiting_join",
        "waiting_sync",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = b"",
        memory: Reservation | None = None,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.memory = memory
        """Released with the last copy of the member."""
        self.waiting_join: JoinWaiter | None = None
        """Set while the member waits for the others to join."""
        self.waiting_sync: SyncWaiter | None = None
        """Set while the member waits for the leader's assignment; answered once that is replicated."""
        self.is_new = False
        """The member has never completed a join; it may be removed while it waits."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_excused(self) -> bool:
        """Whether the member waits for a response and need not send heartbeats."""
        waits_for_sync = self.waiting_sync is not None and self.waiting_sync.is_open
        return not self.is_new and (self.waiting_join is not None or waits_for_sync)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def supports(self, protocol: str) -> bool:
        return any(name == protocol for name, _ in self.protocols)

    def vote(self, candidates: Collection[str]) -> str:
        """First protocol of the member that all others support too."""
        return next(name for name, _ in self.protocols if name in candidates)

    def __repr__(self) -> str:
        return f"ClassicMember({self.member_id}, instance={self.group_instance_id})"


def rebalance_timeout_ms_of(request: JoinGroupRequest) -> int:
    """Rebalance timeout of the member. Version 0 has one timeout for both; a negative one, which no client
    means, counts as zero."""
    given_ms = request.rebalance_timeout_ms
    return request.session_timeout_ms if given_ms == NOT_GIVEN else max(given_ms, 0)


def protocols_of(protocols: Iterable[NamedProtocol]) -> Protocols:
    """Of a protocol that is named twice only the first counts, as in Kafka, where they are a set."""
    found: dict[str, bytes] = {}
    for each in protocols:
        found.setdefault(each.name, each.metadata)
    return tuple(found.items())
