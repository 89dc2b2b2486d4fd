"""Incremental fetch sessions (KIP-227): a reader of many partitions says once what it reads.

A full fetch (epoch 0) lists everything and may open a session. From then on the reader sends
only what changed, and the answer holds only partitions with news. Each request carries the
next epoch, so a lost or repeated request is noticed and the reader starts over.

A session of a follower does not even look at partitions without news: see `fetch_news`.

A session costs memory, so their number is bounded. When all slots are taken, a new session
replaces one that has not been used for a while, or a smaller one. A follower's session counts for more than
any consumer's: consumers, however many, cannot make replication expensive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.core.clock import Clock
from barnabas.core.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from barnabas.core.ids import NO_OFFSET, Randomness, Uuid
from barnabas.core.metrics import Metrics
from barnabas.replication.fetching import NO_REPLICA, PartitionFetch, PartitionRead
from barnabas.replication.leader.fetch_news import NewsBoard

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
IDLE_BEFORE_EVICTION_MS = 120_000
FOLLOWER_GONE_MS = 30_000
"""A follower fetches several times a second: a session of one that is silent for so long is over."""

SessionKey = tuple[Uuid | str, int]


class FetchSession:
    """What one reader reads, in the order in which it is to be served."""

    __slots__ = (
        "board",
        "changed",
        "epoch",
        "fresh",
        "id",
        "last_used_ms",
        "partitions",
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
        board: NewsBoard | None = None,
    ) -> None:
        """With a `board` it is a follower's, and hears of partitions with news."""
        self.id = session_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[SessionKey, PartitionFetch] = {ask.session_key: ask for ask in partitions}
        self.last_used_ms = now_ms
        self.uses_topic_ids = uses_topic_ids
        self.board = board
        self.swept_ms = now_ms
        """Of a follower's: when all partitions were last looked at."""
        self.changed: dict[SessionKey, None] = {}
        """Of a follower's: partitions that may have news, in the order in which they are to be served."""
        self.fresh: dict[SessionKey, None] = {}
        """Those of them that were marked since the last look."""
        if board is not None:
            self.changed = dict.fromkeys(self.partitions)
            for key, ask in self.partitions.items():
                board.subscribe(self, ask.topic_partition, key)

    def due(self) -> list[PartitionFetch]:
        """Of a follower's: what may have news."""
        partitions = self.partitions
        return [partitions[key] for key in self.changed]

    def newly_due(self) -> list[PartitionFetch]:
        """Of a follower's: what was marked since the last look."""
        fresh, self.fresh = self.fresh, {}
        partitions = self.partitions
        return [partitions[key] for key in fresh if key in partitions]

    def mark_all(self) -> None:
        self.changed |= dict.fromkeys(self.partitions)

    def close(self) -> None:
        if self.board is not None:
            for key, ask in self.partitions.items():
                self.board.unsubscribe(self, ask.topic_partition, key)

    def update(self, changed: Iterable[PartitionFetch], forgotten: Iterable[SessionKey]) -> None:
        for ask in changed:
            key = ask.session_key
            known = self.partitions.get(key)
            if known is not None:
                # A new object: a fetch of this session may still wait with the old one.
                ask.sent_high_watermark = known.sent_high_watermark
                ask.sent_log_start_offset = known.sent_log_start_offset
            self.partitions[key] = ask
            if self.board is not None:
                self.changed[key] = None
                if known is None or known.topic_partition != ask.topic_partition:
                    if known is not None:
                        self.board.unsubscribe(self, known.topic_partition, key)
                    self.board.subscribe(self, ask.topic_partition, key)
        for key in forgotten:
            gone = self.partitions.pop(key, None)
            if gone is not None and self.board is not None:
                self.changed.pop(key, None)
                self.board.unsubscribe(self, gone.topic_partition, key)

    def news(
        self, asks: Sequence[PartitionFetch], reads: Sequence[PartitionRead]
    ) -> list[tuple[PartitionFetch, PartitionRead]]:
        """The partitions worth mentioning. Those with data go to the end of the line, so that a
        busy partition cannot keep the others waiting."""
        worth: list[tuple[PartitionFetch, PartitionRead]] = []
        for ask, read in zip(asks, reads, strict=True):
            if _has_news(ask, read):
                worth.append((ask, read))
                if read.records is not None:
                    key = ask.session_key
                    if self.board is not None:
                        if key in self.changed:
                            del self.changed[key]
                            self.changed[key] = None
                    elif self.partitions.pop(key, None) is not None:
                        self.partitions[key] = ask
        return worth


class FetchContext:
    """How one fetch request is to be understood and answered."""

    __slots__ = ("asks", "is_incremental", "session")

    def __init__(
        self, asks: Sequence[PartitionFetch], session: FetchSession | None, *, is_incremental: bool = False
    ) -> None:
        self.asks = asks
        self.session = session
        self.is_incremental = is_incremental

    @property
    def following(self) -> FetchSession | None:
        """The session, if it is a follower's and goes on: then what is to be read is in it, not in `asks`."""
        session = self.session
        return session if self.is_incremental and session is not None and session.board is not None else None

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id

    def to_send(
        self, asks: Sequence[PartitionFetch], reads: Sequence[PartitionRead]
    ) -> list[tuple[PartitionFetch, PartitionRead]]:
        if self.session is None:
            return list(zip(asks, reads, strict=True))
        news = self.session.news(asks, reads)
        return news if self.is_incremental else list(zip(asks, reads, strict=True))


class FetchSessions:
    """The bounded set of sessions."""

    def __init__(
        self,
        slots_max: int,
        clock: Clock,
        randomness: Randomness,
        metrics: Metrics,
        board: NewsBoard | None = None,
    ) -> None:
        """Without a `board` followers are treated as consumers are."""
        self._board = board
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
        asks: Sequence[PartitionFetch],
        forgotten: Sequence[SessionKey],
        *,
        uses_topic_ids: bool,
        is_from_follower: bool = False,
    ) -> FetchContext:
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(session_id)
            if epoch == FINAL_EPOCH:
                return FetchContext(asks, None)
            board = None
            if is_from_follower:
                board = self._board
                self._close_silent_followers()
            return FetchContext(asks, self._open(asks, board, uses_topic_ids=uses_topic_ids))
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
        if asks or forgotten:
            session.update(asks, forgotten)
        if not session.partitions:
            self._close(session_id)
            return FetchContext((), None)
        if session.board is not None:
            return FetchContext((), session, is_incremental=True)
        return FetchContext(list(session.partitions.values()), session, is_incremental=True)

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _close_silent_followers(self) -> None:
        """One that lost its connection opens another session, and nobody ends the old one."""
        now_ms = self._clock.monotonic_ms()
        for session in list(self._sessions.values()):
            if session.board is not None and now_ms - session.last_used_ms > FOLLOWER_GONE_MS:
                self._close(session.id)

    def _open(
        self, asks: Sequence[PartitionFetch], board: NewsBoard | None, *, uses_topic_ids: bool
    ) -> FetchSession | None:
        is_from_follower = board is not None
        if len(self._sessions) >= self._slots_max and not self._make_room(is_from_follower, len(asks)):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._randomness.randrange(1, EPOCH_MAX)
        now_ms = self._clock.monotonic_ms()
        session = FetchSession(session_id, asks, now_ms, uses_topic_ids=uses_topic_ids, board=board)
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
    return session.board is not None, len(session.partitions)


def next_epoch(epoch: int) -> int:
    """Epochs count up and start over at 1: 0 opens a session and −1 closes it."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


def _has_news(ask: PartitionFetch, read: PartitionRead) -> bool:
    news = (
        read.records is not None
        or read.diverging_epoch is not None
        or read.preferred_read_replica != NO_REPLICA
    )
    if read.high_watermark != ask.sent_high_watermark:
        ask.sent_high_watermark = read.high_watermark
        news = True
    if read.log_start_offset != ask.sent_log_start_offset:
        ask.sent_log_start_offset = read.log_start_offset
        news = True
    if read.error_code:
        # An error must be repeated until the reader reacts; so must the first answer after it.
        ask.sent_high_watermark = NO_OFFSET
        news = True
    return news
