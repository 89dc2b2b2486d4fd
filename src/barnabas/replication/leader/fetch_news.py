"""Which sessions of followers read which partition, so that news of one reaches only those.

A follower of two thousand partitions fetches all the time, and of most of them there is nothing to
say. To look at each for every fetch would cost the leader more than the records do. So a session of a
follower keeps a set of partitions that may have news; whatever happens to a partition (an append, a
moved watermark, another epoch) puts it there, and it leaves when a look at it finds that the
follower has everything and knows everything. A look at a partition that has no news is harmless, a
missing mark is not; therefore a session is also looked through as a whole from time to time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.replication.leader.fetch_session import FetchSession, SessionKey


class NewsBoard:
    __slots__ = ("_readers",)

    def __init__(self) -> None:
        self._readers: dict[TopicPartition, dict[FetchSession, SessionKey]] = {}

    def __len__(self) -> int:
        """How many partitions are read by anybody."""
        return len(self._readers)

    def subscribe(self, session: FetchSession, key: TopicPartition, session_key: SessionKey) -> None:
        self._readers.setdefault(key, {})[session] = session_key

    def unsubscribe(self, session: FetchSession, key: TopicPartition, session_key: SessionKey) -> None:
        """A topic made anew under its old name is another partition of the session, and stays."""
        readers = self._readers.get(key)
        if readers is not None and readers.get(session) == session_key:
            del readers[session]
            if not readers:
                del self._readers[key]

    def note(self, key: TopicPartition) -> None:
        """The sessions shall hear of something in their next answer, and do not wait for it."""
        readers = self._readers.get(key)
        if readers is not None:
            for session, session_key in readers.items():
                session.changed[session_key] = None

    def mark(self, key: TopicPartition) -> Collection[FetchSession]:
        """There may be news of the partition: returns the sessions that have to look at it."""
        readers = self._readers.get(key)
        if readers is None:
            return ()
        for session, session_key in readers.items():
            session.changed[session_key] = session.fresh[session_key] = None
        return tuple(readers)
