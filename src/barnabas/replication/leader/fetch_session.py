"""Incremental fetch session (KIP-227): the partitions of one reader, and which of them may have changed.

A follower of two thousand partitions fetches all the time, and most of them have not changed. Looking at each
for every fetch would cost the leader more than the records do. So a follower's session subscribes to its
partitions and keeps a set of those that may have changed. Every event of a partition (an append, a moved
watermark, another epoch) puts it there. It leaves when a look at it finds that the follower is up to date. A
look at an unchanged partition is harmless, a missing mark is not. Therefore each session is also looked
through as a whole from time to time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from barnabas.core.bounds.kept_memory import Reservation
from barnabas.core.ids import NO_OFFSET, TopicPartition, Uuid
from barnabas.replication.partition.fetching import NO_REPLICA, PartitionFetch, PartitionRead
from barnabas.security.identity.principal import KafkaPrincipal

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1

SessionKey = tuple[Uuid | str, int]


class SessionOwner(Protocol):
    """Connection of a reader."""

    connection_id: str

    @property
    def principal(self) -> KafkaPrincipal: ...
    def when_closed(self, action: Callable[[], None]) -> None: ...


class FetchSession:
    """Partitions of one reader, in the order in which they are served."""

    __slots__ = (
        "changed",
        "epoch",
        "id",
        "last_used_ms",
        "newly_changed",
        "owner",
        "partitions",
        "reservation",
        "subscriptions",
        "swept_ms",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: Iterable[PartitionFetch],
        now_ms: float,
        *,
        uses_topic_ids: bool,
        subscriptions: PartitionSubscriptions | None = None,
        owner: SessionOwner | None = None,
        reservation: Reservation | None = None,
    ) -> None:
        """With `subscriptions` it is a follower's session, and is notified of partitions that may have
        changed."""
        self.id = session_id
        self.owner = owner
        """The connection that opened the session; no other may use it."""
        self.reservation = reservation
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[SessionKey, PartitionFetch] = {fetch.session_key: fetch for fetch in partitions}
        self.last_used_ms = now_ms
        self.uses_topic_ids = uses_topic_ids
        self.subscriptions = subscriptions
        self.swept_ms = now_ms
        """Follower's session: when all partitions were last looked at."""
        self.changed: dict[SessionKey, None] = {}
        """Follower's session: partitions that may have changed, in the order in which they are served."""
        self.newly_changed: dict[SessionKey, None] = {}
        """Partitions of `changed` that were marked since the last look."""
        if subscriptions is not None:
            self.changed = dict.fromkeys(self.partitions)
            for key, fetch in self.partitions.items():
                subscriptions.subscribe(self, fetch.topic_partition, key)

    def changed_partitions(self) -> list[PartitionFetch]:
        """Follower's session: partitions that may have changed."""
        partitions = self.partitions
        return [partitions[key] for key in self.changed]

    def newly_changed_partitions(self) -> list[PartitionFetch]:
        """Follower's session: partitions marked since the last look."""
        keys, self.newly_changed = self.newly_changed, {}
        partitions = self.partitions
        return [partitions[key] for key in keys if key in partitions]

    def mark_all(self) -> None:
        self.changed |= dict.fromkeys(self.partitions)

    def close(self) -> None:
        if self.reservation is not None:
            self.reservation.release()
        if self.subscriptions is not None:
            for key, fetch in self.partitions.items():
                self.subscriptions.unsubscribe(self, fetch.topic_partition, key)

    def update(self, changed: Iterable[PartitionFetch], forgotten: Iterable[SessionKey]) -> None:
        for fetch in changed:
            key = fetch.session_key
            known = self.partitions.get(key)
            if known is not None:
                # A new object: a fetch of this session may still wait with the old one.
                fetch.sent_high_watermark = known.sent_high_watermark
                fetch.sent_log_start_offset = known.sent_log_start_offset
            self.partitions[key] = fetch
            if self.subscriptions is not None:
                self.changed[key] = None
                if known is None or known.topic_partition != fetch.topic_partition:
                    if known is not None:
                        self.subscriptions.unsubscribe(self, known.topic_partition, key)
                    self.subscriptions.subscribe(self, fetch.topic_partition, key)
        for key in forgotten:
            gone = self.partitions.pop(key, None)
            if gone is not None and self.subscriptions is not None:
                self.changed.pop(key, None)
                self.subscriptions.unsubscribe(self, gone.topic_partition, key)

    def to_mention(
        self, fetches: Sequence[PartitionFetch], reads: Sequence[PartitionRead]
    ) -> list[tuple[PartitionFetch, PartitionRead]]:
        """Partitions worth mentioning in the response. Those with records go to the end of the order, so that
        a busy partition cannot keep the others waiting."""
        worth: list[tuple[PartitionFetch, PartitionRead]] = []
        for fetch, read in zip(fetches, reads, strict=True):
            if _is_new_to(fetch, read):
                worth.append((fetch, read))
                if read.records is not None:
                    key = fetch.session_key
                    if self.subscriptions is not None:
                        if key in self.changed:
                            del self.changed[key]
                            self.changed[key] = None
                    elif self.partitions.pop(key, None) is not None:
                        self.partitions[key] = fetch
        return worth


class PartitionSubscriptions:
    """Followers' sessions by partition; every event of a partition is marked in all of them."""

    __slots__ = ("_readers",)

    def __init__(self) -> None:
        self._readers: dict[TopicPartition, dict[FetchSession, SessionKey]] = {}

    def __len__(self) -> int:
        """Number of partitions that any session reads."""
        return len(self._readers)

    def subscribe(self, session: FetchSession, key: TopicPartition, session_key: SessionKey) -> None:
        self._readers.setdefault(key, {})[session] = session_key

    def unsubscribe(self, session: FetchSession, key: TopicPartition, session_key: SessionKey) -> None:
        """Unsubscribe one session key. A topic recreated under the same name has another key in the session,
        which stays."""
        readers = self._readers.get(key)
        if readers is not None and readers.get(session) == session_key:
            del readers[session]
            if not readers:
                del self._readers[key]

    def mark_for_next_answer(self, key: TopicPartition) -> None:
        """Mention the partition in the next response of its sessions, without completing a waiting fetch."""
        readers = self._readers.get(key)
        if readers is not None:
            for session, session_key in readers.items():
                session.changed[session_key] = None

    def mark_changed(self, key: TopicPartition) -> Collection[FetchSession]:
        """Mark the partition in its sessions; returns the sessions that have to look at it."""
        readers = self._readers.get(key)
        if readers is None:
            return ()
        for session, session_key in readers.items():
            session.changed[session_key] = session.newly_changed[session_key] = None
        return tuple(readers)


def next_epoch(epoch: int) -> int:
    """Epochs count up and start over at 1: 0 opens a session and −1 closes it."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


def _is_new_to(fetch: PartitionFetch, read: PartitionRead) -> bool:
    is_new = (
        read.records is not None
        or read.diverging_epoch is not None
        or read.preferred_read_replica != NO_REPLICA
    )
    if read.high_watermark != fetch.sent_high_watermark:
        fetch.sent_high_watermark = read.high_watermark
        is_new = True
    if read.log_start_offset != fetch.sent_log_start_offset:
        fetch.sent_log_start_offset = read.log_start_offset
        is_new = True
    if read.error_code:
        # An error must be repeated until the reader reacts; so must the first response after it.
        fetch.sent_high_watermark = NO_OFFSET
        is_new = True
    return is_new
