"""Memory account of group members: estimates, and reservations per client.

A member id that is given out outlives its request. So does a member with its protocols, subscription and
assignment. Each holds a reservation of the shared `MemoryAccount`, charged to the client that joins and
released with the member. Members read back from the log have no known client: they count for the broker
alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.coordinator.group.state.classic_member import ClassicMember, Protocols
from barnabas.coordinator.group.state.client_info import Caller
from barnabas.coordinator.group.state.consumer_member import ConsumerMember
from barnabas.core.bounds.kept_memory import MemoryAccount, MemoryLimits, Reservation
from barnabas.core.errors import GroupMaxSizeReached, MessageTooLarge
from barnabas.core.limits import (
    GROUP_MEMORY_BYTES_MAX,
    GROUP_MEMORY_PER_CONNECTION_BYTES_MAX,
    GROUP_MEMORY_PER_PRINCIPAL_BYTES_MAX,
    JOIN_METADATA_BYTES_MAX,
)
from barnabas.core.reporting.log_text import cut
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger

GROUP_MEMORY_LIMITS = MemoryLimits(
    GROUP_MEMORY_PER_CONNECTION_BYTES_MAX, GROUP_MEMORY_PER_PRINCIPAL_BYTES_MAX, GROUP_MEMORY_BYTES_MAX
)

PENDING_BYTES = 1_500
"""Member id that is given out: the id twice, its timer and its entries in tables."""
MEMBER_BYTES = 3_000
"""Member without its metadata: the object, its ids, its timers and its waiting request."""
NAME_BYTES = 100
"""Name in a list, or a protocol, without its characters."""
PARTITION_BYTES = 300
"""Partition assigned to a consumer member: in its target, in its assignment, and as owned."""


class GroupMemory:
    """Members of one shard, charged to the account of all shards."""

    def __init__(self, account: MemoryAccount, limited_log: RateLimitedLogger) -> None:
        self._account = account
        self._limited_log = limited_log

    def pending(self, group_id: str, caller: Caller) -> Reservation:
        """Reserve memory for a member id that is given out."""
        return self._reserve(group_id, caller, None, PENDING_BYTES)

    def classic(
        self,
        group_id: str,
        caller: Caller,
        protocols: Protocols,
        instance_id: str | None,
        previous: ClassicMember | None = None,
    ) -> Reservation:
        """Reserve memory for a joining classic member; `previous` is its previous state."""
        metadata_bytes = _protocols_bytes(protocols)
        if metadata_bytes > JOIN_METADATA_BYTES_MAX:
            raise MessageTooLarge(
                f"a member of group {cut(group_id)} joins with {metadata_bytes} bytes of metadata; "
                f"up to {JOIN_METADATA_BYTES_MAX} are allowed"
            )
        kept_bytes = 0 if previous is None else len(previous.assignment)
        size_bytes = MEMBER_BYTES + metadata_bytes + len(instance_id or "") + kept_bytes
        return self._reserve(group_id, caller, None if previous is None else previous.memory, size_bytes)

    def assigned(self, group_id: str, member: ClassicMember, assignment: bytes) -> None:
        """Charge the leader's assignment, which is kept with its member."""
        size_bytes = MEMBER_BYTES + _protocols_bytes(member.protocols) + len(assignment)
        if member.memory is None or not self._account.grow(member.memory, size_bytes):
            raise self._full(group_id, member.client_id)

    def consumer(
        self, group_id: str, caller: Caller, member: ConsumerMember, partitions: int
    ) -> Reservation | None:
        """Reserve memory for a joining or changed consumer member; `partitions` is its share."""
        size_bytes = _consumer_bytes(member) + PARTITION_BYTES * partitions
        return self._reserve(group_id, caller, member.memory, size_bytes)

    def loaded_classic(self, member: ClassicMember) -> Reservation:
        return self._account.claim(MEMBER_BYTES + _protocols_bytes(member.protocols) + len(member.assignment))

    def loaded_consumer(self, member: ConsumerMember) -> Reservation:
        return self._account.claim(_consumer_bytes(member))

    def _reserve(
        self, group_id: str, caller: Caller, previous: Reservation | None, size_bytes: int
    ) -> Reservation:
        if previous is not None and self._account.grow(previous, size_bytes):
            return previous
        made = self._account.reserve(caller.owner, size_bytes) if previous is None else None
        if made is None:
            raise self._full(group_id, caller.client_id)
        return made

    def _full(self, group_id: str, client_id: str) -> GroupMaxSizeReached:
        self._limited_log.warn(
            "memory",
            "group %s: client %s is refused: its connection, its principal or the broker keeps as much for "
            "group members as it may",
            cut(group_id),
            cut(client_id),
        )
        return GroupMaxSizeReached(f"no more memory is kept for members of group {cut(group_id)}")


def group_memory_account(metrics: Metrics) -> MemoryAccount:
    """The one group account of a broker."""
    return MemoryAccount("group_members", GROUP_MEMORY_LIMITS, metrics)


def _protocols_bytes(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum(NAME_BYTES + len(name) + len(metadata) for name, metadata in protocols)


def _consumer_bytes(member: ConsumerMember) -> int:
    names_bytes = sum(map(len, member.topic_names)) + NAME_BYTES * len(member.topic_names)
    metadata_bytes = 0
    if member.classic is not None:
        metadata_bytes = sum(
            NAME_BYTES + len(each.name) + len(each.metadata) for each in member.classic.supported_protocols
        )
    labels = (member.member_id, member.instance_id, member.rack_id, member.topic_regex)
    return MEMBER_BYTES + names_bytes + metadata_bytes + sum(len(each or "") for each in labels)
