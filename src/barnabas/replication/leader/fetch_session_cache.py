"""Cache of incremental fetch sessions (KIP-227): a reader of many partitions lists them only once.

A full fetch (epoch 0) lists everything and may open a session. Later fetches carry only changes, and their
responses only partitions that have changed. Each request carries the next epoch, so a lost or repeated
request is noticed and the reader starts over.

A session belongs to the connection that opened it. No other connection finds it, whichever id it guesses, and
it ends with the connection. A session costs memory, so the number of sessions and of their partitions is
bounded. When all slots are taken, a new session replaces one that has not been used for a while, or a smaller
one. A follower's session counts for more than any consumer's: consumers, however many, cannot make
replication expensive.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from barnabas.core.bounds.kept_memory import MemoryAccount, MemoryLimits, MemoryOwner
from barnabas.core.clock import Clock
from barnabas.core.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from barnabas.core.ids import Randomness
from barnabas.core.limits import (
    FETCH_SESSION_BROKER_BYTES_MAX,
    FETCH_SESSION_BYTES,
    FETCH_SESSION_CONNECTION_BYTES_MAX,
    FETCH_SESSION_PARTITION_BYTES,
    FETCH_SESSION_PRINCIPAL_BYTES_MAX,
)
from barnabas.core.reporting.metrics import Metrics
from barnabas.replication.leader.fetch_session import (
    EPOCH_MAX,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    PartitionSubscriptions,
    SessionKey,
    SessionOwner,
    next_epoch,
)
from barnabas.replication.partition.fetching import PartitionFetch, PartitionRead

IDLE_BEFORE_EVICTION_MS = 120_000
FOLLOWER_GONE_MS = 30_000
"""A follower fetches several times a second. A session silent for this long is over."""


SESSION_LIMITS = MemoryLimits(
    FETCH_SESSION_CONNECTION_BYTES_MAX, FETCH_SESSION_PRINCIPAL_BYTES_MAX, FETCH_SESSION_BROKER_BYTES_MAX
)
NO_OWNER = MemoryOwner("", "")


class FetchContext:
    """Session context of one fetch request: what to read, and how to answer."""

    __slots__ = ("fetches", "is_incremental", "session")

    def __init__(
        self, fetches: Sequence[PartitionFetch], session: FetchSession | None, *, is_incremental: bool = False
    ) -> None:
        self.fetches = fetches
        self.session = session
        self.is_incremental = is_incremental

    @property
    def following(self) -> FetchSession | None:
        """The follower's session that the request continues; its partitions are in it, not in `fetches`."""
        session = self.session
        return (
            session
            if self.is_incremental and session is not None and session.subscriptions is not None
            else None
        )

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id

    def to_send(
        self, fetches: Sequence[PartitionFetch], reads: Sequence[PartitionRead]
    ) -> list[tuple[PartitionFetch, PartitionRead]]:
        if self.session is not None:
            mentioned = self.session.to_mention(fetches, reads)
            if self.is_incremental:
                return mentioned
        assert len(reads) == len(fetches)
        return [(fetch, reads[index]) for index, fetch in enumerate(fetches)]


class FetchSessionCache:
    """Bounded set of fetch sessions."""

    def __init__(
        self,
        slots_max: int,
        clock: Clock,
        randomness: Randomness,
        metrics: Metrics,
        subscriptions: PartitionSubscriptions,
    ) -> None:
        self._subscriptions = subscriptions
        self._slots_max = slots_max
        self._clock = clock
        self._randomness = randomness
        self._sessions: dict[int, FetchSession] = {}
        self._by_owner: dict[SessionOwner, set[int]] = {}
        self._memory = MemoryAccount("fetch_sessions", SESSION_LIMITS, metrics)
        self._evictions = metrics.counter(
            "kafka_fetch_session_evictions_total", "Fetch sessions evicted to make room for others."
        )
        metrics.gauge("kafka_fetch_sessions", "Open fetch sessions.", lambda: len(self._sessions))

    def __len__(self) -> int:
        return len(self._sessions)

    def context(
        self,
        session_id: int,
        epoch: int,
        fetches: Sequence[PartitionFetch],
        forgotten: Sequence[SessionKey],
        *,
        uses_topic_ids: bool,
        is_from_follower: bool = False,
        owner: SessionOwner | None = None,
        may_keep: bool = True,
    ) -> FetchContext:
        """Session context of a fetch. Without `may_keep`, the reader has no right to some partitions of
        `fetches`: no session keeps them, and an existing session with them ends."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if self._find(session_id, owner) is not None:
                self._close(session_id)
            if epoch == FINAL_EPOCH or not may_keep:
                return FetchContext(fetches, None)
            subscriptions = None
            if is_from_follower:
                subscriptions = self._subscriptions
                self._close_silent_followers()
            session = self._open(fetches, subscriptions, owner, uses_topic_ids=uses_topic_ids)
            return FetchContext(fetches, session)
        session = self._check(session_id, epoch, owner, uses_topic_ids=uses_topic_ids)
        if not may_keep or not self._has_room(session, len(session.partitions) + len(fetches)):
            self._close(session_id)
            raise FetchSessionIdNotFound(f"fetch session {session_id} cannot keep these partitions")
        session.epoch = next_epoch(epoch)
        session.last_used_ms = self._clock.monotonic_ms()
        if fetches or forgotten:
            session.update(fetches, forgotten)
        if not session.partitions:
            self._close(session_id)
            return FetchContext((), None)
        if session.subscriptions is not None:
            return FetchContext((), session, is_incremental=True)
        return FetchContext(list(session.partitions.values()), session, is_incremental=True)

    def _check(
        self, session_id: int, epoch: int, owner: SessionOwner | None, *, uses_topic_ids: bool
    ) -> FetchSession:
        """The session that a request continues."""
        session = self._find(session_id, owner)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session_id} expects epoch {session.epoch}, not {epoch}"
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(f"fetch session {session_id} mixes topic names and topic ids")
        return session

    def give_up_new(self, fetch: FetchContext) -> int:
        """Session id for an empty response. A reader that gets nothing about partitions it has just listed
        lists them again, so the new session is closed."""
        if fetch.is_incremental:
            return fetch.session_id
        self._close(fetch.session_id)
        return NO_SESSION

    def _find(self, session_id: int, owner: SessionOwner | None) -> FetchSession | None:
        """The session if the connection owns it; the sessions of others stay invisible."""
        session = self._sessions.get(session_id)
        return session if session is not None and session.owner is owner else None

    def _has_room(self, session: FetchSession, partitions: int) -> bool:
        reservation = session.reservation
        return reservation is None or self._memory.grow(reservation, _size_bytes(partitions))

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        if session.owner is not None and session.owner in self._by_owner:
            self._by_owner[session.owner].discard(session_id)
        session.close()

    def _close_of(self, owner: SessionOwner) -> None:
        """Close the sessions of an ended connection."""
        for session_id in list(self._by_owner[owner]):
            self._close(session_id)
        del self._by_owner[owner]

    def _close_silent_followers(self) -> None:
        """Close sessions of followers that lost their connection and opened another session."""
        now_ms = self._clock.monotonic_ms()
        for session in list(self._sessions.values()):
            if session.subscriptions is not None and now_ms - session.last_used_ms > FOLLOWER_GONE_MS:
                self._close(session.id)

    def _open(
        self,
        fetches: Sequence[PartitionFetch],
        subscriptions: PartitionSubscriptions | None,
        owner: SessionOwner | None,
        *,
        uses_topic_ids: bool,
    ) -> FetchSession | None:
        is_from_follower = subscriptions is not None
        reservation = None
        if not is_from_follower:
            by = NO_OWNER if owner is None else MemoryOwner(str(owner.principal), owner.connection_id)
            reservation = self._memory.reserve(by, _size_bytes(len(fetches)))
            if reservation is None:
                return None
        if len(self._sessions) >= self._slots_max and not self._make_room(is_from_follower, len(fetches)):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._randomness.randrange(1, EPOCH_MAX)
        now_ms = self._clock.monotonic_ms()
        session = FetchSession(
            session_id,
            fetches,
            now_ms,
            uses_topic_ids=uses_topic_ids,
            subscriptions=subscriptions,
            owner=owner,
            reservation=reservation,
        )
        self._sessions[session_id] = session
        if owner is not None:
            if owner not in self._by_owner:
                self._by_owner[owner] = set()
                owner.when_closed(partial(self._close_of, owner))
            self._by_owner[owner].add(session_id)
        return session

    def _make_room(self, is_from_follower: bool, size: int) -> bool:
        if not self._sessions:
            return False
        oldest = min(self._sessions.values(), key=lambda session: session.last_used_ms)
        if self._clock.monotonic_ms() - oldest.last_used_ms > IDLE_BEFORE_EVICTION_MS:
            victim = oldest
        else:
            victim = min(self._sessions.values(), key=_weight)
            if _weight(victim) >= (is_from_follower, size):
                return False
        self._close(victim.id)
        self._evictions.value += 1
        return True


def _size_bytes(partitions: int) -> int:
    return FETCH_SESSION_BYTES + partitions * FETCH_SESSION_PARTITION_BYTES


def _weight(session: FetchSession) -> tuple[bool, int]:
    return session.subscriptions is not None, len(session.partitions)
