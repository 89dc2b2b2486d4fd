"""Incremental fetch session with one broker (KIP-227): a request names only partitions that changed.

    session id 0, epoch 0   full request; the broker may open a session with its answer
    session id n, epoch e   incremental request; e counts the requests of the session
    session id n, epoch 0   full request that ends session n and asks for a new one

The broker keeps what the client named: position, size, leader epoch, topic id. A request that fails leaves it
unknown what the broker has, so the next one is full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.core.errors import FetchSessionIdNotFound
from barnabas.core.ids import TopicPartition, Uuid

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
_EPOCH_MAX: Final = 0x7FFF_FFFF


class Wanted(NamedTuple):
    """One partition of a Fetch request."""

    topic_id: Uuid
    offset: int
    leader_epoch: int
    max_bytes: int


class SessionRequest(NamedTuple):
    session_id: int
    epoch: int
    named: dict[TopicPartition, Wanted]
    """Partitions that the request names."""
    forgotten: list[tuple[TopicPartition, Uuid]]

    @property
    def is_full(self) -> bool:
        return self.epoch == INITIAL_EPOCH


class FetchSession:
    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: dict[TopicPartition, Wanted] = {}

    def request(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionRequest:
        """Request for these partitions, in this order."""
        if self._epoch == INITIAL_EPOCH:
            self._known = dict(wanted)
            return SessionRequest(self._id, INITIAL_EPOCH, dict(wanted), [])
        forgotten: list[tuple[TopicPartition, Uuid]] = []
        for at, known in self._known.items():
            now = wanted.get(at)
            # A topic that was created again is another topic: the session must forget the old one.
            if now is None or now.topic_id != known.topic_id:
                forgotten.append((at, known.topic_id))
        named = {at: now for at, now in wanted.items() if self._known.get(at) != now}
        self._known = dict(wanted)
        return SessionRequest(self._id, self._epoch, named, forgotten)

    def answered(self, request: SessionRequest, session_id: int) -> None:
        """Take an answer without an error."""
        if request.is_full or session_id == request.session_id != NO_SESSION:
            self._id = session_id
            self._epoch = _following(request.epoch) if session_id != NO_SESSION else INITIAL_EPOCH
        else:
            self._id, self._epoch = session_id, INITIAL_EPOCH

    def refused(self, error_code: int) -> None:
        """Take an answer with an error for the whole session: begin again."""
        if error_code == FetchSessionIdNotFound.code:
            self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH

    def failed(self) -> None:
        """The request got no answer. A session ends with its connection."""
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH

    @property
    def known(self) -> Iterable[TopicPartition]:
        return self._known.keys()


def _following(epoch: int) -> int:
    return 1 if epoch >= _EPOCH_MAX else epoch + 1
