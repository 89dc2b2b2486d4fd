"""The fetch sessions of a broker (KIP-227): a reader of many partitions says once what it reads.

A full fetch (epoch 0) lists everything and may open a session. From then on the reader sends
only what changed, and the answer holds only partitions that have. Each request carries the
next epoch, so a lost or repeated request is noticed and the reader starts over.

A session costs memory, so their number is bounded. When all slots are taken, a new session
replaces one that has not been used for a while, or a smaller one. A follower's session counts for more than
any consumer's: consumers, however many, cannot make replication expensive.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.clock import Clock
from barnabas.core.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from barnabas.core.ids import Randomness
from barnabas.core.metrics import Metrics
from barnabas.replication.fetching import PartitionFetch, PartitionRead
from barnabas.replication.leader.fetch_session import (
    EPOCH_MAX,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    PartitionSubscriptions,
    SessionKey,
    next_epoch,
)

IDLE_BEFORE_EVICTION_MS = 120_000
FOLLOWER_GONE_MS = 30_000
"""A follower fetches several times a second: a session of one that is silent for so long is over."""


class FetchContext:
    """How one fetch request is to be understood and answered."""

    __slots__ = ("fetches", "is_incremental", "session")

    def __init__(
        self, fetches: Sequence[PartitionFetch], session: FetchSession | None, *, is_incremental: bool = False
    ) -> None:
        self.fetches = fetches
        self.session = session
        self.is_incremental = is_incremental

    @property
    def following(self) -> FetchSession | None:
        """The session, if it is a follower's and goes on: what is to be read is in it, not in `fetches`."""
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
    """The bounded set of sessions."""

    def __init__(
        self,
        slots_max: int,
        clock: Clock,
        randomness: Randomness,
        metrics: Metrics,
        subscriptions: PartitionSubscriptions | None = None,
    ) -> None:
        """Without `subscriptions`, followers are treated as consumers are."""
        self._subscriptions = subscriptions
        self._slots_max = slots_max
        self._clock = clock
        self._randomness = randomness
        self._sessions: dict[int, FetchSession] = {}
        self._evictions = metrics.counter(
            "kafka_fetch_session_evictions_total", "Fetch sessions given up to make room for others."
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
    ) -> FetchContext:
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(session_id)
            if epoch == FINAL_EPOCH:
                return FetchContext(fetches, None)
            subscriptions = None
            if is_from_follower:
                subscriptions = self._subscriptions
                self._close_silent_followers()
            return FetchContext(fetches, self._open(fetches, subscriptions, uses_topic_ids=uses_topic_ids))
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(f"fetch session {session_id} mixes topic names and topic ids")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session_id} expects epoch {session.epoch}, not {epoch}"
            )
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

    def give_up_new(self, fetch: FetchContext) -> int:
        """The session that an answer without anything may name: a reader that hears nothing of the partitions
        that it has just listed, lists them again, so the session made for them is over."""
        if fetch.is_incremental:
            return fetch.session_id
        self._close(fetch.session_id)
        return NO_SESSION

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _close_silent_followers(self) -> None:
        """One that lost its connection opens another session, and nobody ends the old one."""
        now_ms = self._clock.monotonic_ms()
        for session in list(self._sessions.values()):
            if session.subscriptions is not None and now_ms - session.last_used_ms > FOLLOWER_GONE_MS:
                self._close(session.id)

    def _open(
        self,
        fetches: Sequence[PartitionFetch],
        subscriptions: PartitionSubscriptions | None,
        *,
        uses_topic_ids: bool,
    ) -> FetchSession | None:
        is_from_follower = subscriptions is not None
        if len(self._sessions) >= self._slots_max and not self._make_room(is_from_follower, len(fetches)):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._randomness.randrange(1, EPOCH_MAX)
        now_ms = self._clock.monotonic_ms()
        session = FetchSession(
            session_id, fetches, now_ms, uses_topic_ids=uses_topic_ids, subscriptions=subscriptions
        )
        self._sessions[session_id] = session
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


def _weight(session: FetchSession) -> tuple[bool, int]:
    return session.subscriptions is not None, len(session.partitions)
