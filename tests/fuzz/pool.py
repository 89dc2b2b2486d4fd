"""Names and ids that a sequence knows: those it invents, and those that the broker's answers taught it.

A request that names a member, a producer, a fetch session or a topic id gets past the first check only if
they exist. So every answer is searched for such fields, and later requests draw from what was found. The
names are few and shared by all users, so that requests meet: the same group is joined, deleted and described.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from barnabas.protocol.schema.declarations import MessageType
from barnabas.protocol.schema.message import Message

TOPICS = ("fuzz-a", "fuzz-b", "fuzz.c", "fuzz_c", "hidden-t", "__consumer_offsets", "unknown-t")
GROUPS = ("group-a", "group-b", "hidden-g")
TRANSACTIONS = ("txn-a", "txn-b", "hidden-x")
USERS = ("admin", "alice", "mallory")

LEARNED = frozenset(
    {
        *("member_id", "generation_id", "member_epoch", "producer_id", "producer_epoch", "topic_id"),
        *("session_id", "hmac", "token_id", "leader_epoch", "assignment", "base_offset", "high_watermark"),
    }
)
REMEMBERED_MAX = 8
SHARED = {"generation_id": "member_epoch", "generation_id_or_member_epoch": "member_epoch"}
"""Fields that mean the same under several names."""


class Pool:
    def __init__(self) -> None:
        self._known: dict[str, list[Any]] = {}
        self.learned: list[bytes] = []
        """In the order in which they were met: what a replay has other values for."""

    def learn(self, message: Message) -> None:
        learned, nested = _fields(type(message))
        for field, name in learned:
            value = getattr(message, field)
            if value and not isinstance(value, list | Message):
                self._remember(name, value)
        for field in nested:
            value = getattr(message, field)
            for each in value if isinstance(value, list) else (value,):
                if each is not None:
                    self.learn(each)

    def _remember(self, name: str, value: Any) -> None:
        known = self._known.setdefault(name, [])
        if value in known:
            return
        if isinstance(value, memoryview):
            value = bytes(value)
        known.append(value)
        del known[:-REMEMBERED_MAX]
        if isinstance(value, str | bytes) and len(value) >= 16:
            self.learned.append(value.encode() if isinstance(value, str) else bytes(value))

    def forget(self, name: str) -> None:
        """Ids that are gone, as fetch sessions are with their connection."""
        self._known.pop(name, None)

    def known(self, name: str, random: Random) -> Any:
        """Something that an answer said under this name, or None."""
        found = self._known.get(SHARED.get(name, name))
        return random.choice(found) if found else None


@cache
def _fields(cls: MessageType) -> tuple[list[tuple[str, str]], list[str]]:
    """Fields to learn, with the names under which they are known, and fields that hold structs."""
    fields = cls.__schema__.fields
    shared = [(field.name, SHARED.get(field.name, field.name)) for field in fields]
    nested = [field.name for field in fields if (field.kind.element or field.kind).message is not None]
    return [(field, name) for field, name in shared if name in LEARNED], nested
