"""A member of a classic group: what it said when it joined, and its request that waits."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from barnabas.coordinator.decision import Waiter
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse

Protocols = tuple[tuple[str, bytes], ...]
"""The assignment strategies that a member can follow, its favourite first, each with the member's
metadata for it (for consumers: their subscription)."""

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
        self.waiting_join: JoinWaiter | None = None
        """Set while the member waits for the others to join."""
        self.waiting_sync: SyncWaiter | None = None
        """Set while the member waits for the leader's assignment, and answered once that is replicated."""
        self.is_new = False
        """It has never completed a join; then it may be given up on while it waits."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_excused(self) -> bool:
        """A member that waits for us need not send heartbeats."""
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
        """The first of its protocols that all others support too."""
        return next(name for name, _ in self.protocols if name in candidates)

    def __repr__(self) -> str:
        return f"ClassicMember({self.member_id}, instance={self.group_instance_id})"


def protocols_of(request_protocols: Sequence[object]) -> Protocols:
    return tuple((each.name, each.metadata) for each in request_protocols)  # type: ignore[attr-defined]
