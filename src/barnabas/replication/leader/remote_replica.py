"""What a leader knows of one follower, which is what the follower's fetches have told it.

A fetch from offset N says "I have everything below N", so the follower's log ends at N. Whether
it keeps up is a matter of time, not of distance: a follower is caught up at a moment if it had
at that moment everything that the leader had. A follower that fetches from the leader's end is
caught up now; one that fetches from where the leader's end was at its last fetch was caught up
then, however much has been appended since. So a burst of appends throws nobody out.
"""

from __future__ import annotations

from barnabas.core.ids import NO_OFFSET, BrokerId

NO_BROKER_EPOCH = -1
NEVER = float("-inf")


class RemoteReplica:
    __slots__ = (
        "_last_fetch_leader_end_offset",
        "_last_fetch_ms",
        "broker_epoch",
        "broker_id",
        "end_offset",
        "last_caught_up_ms",
        "refused_until_ms",
        "start_offset",
    )

    def __init__(self, broker_id: BrokerId) -> None:
        self.broker_id = broker_id
        self.broker_epoch = NO_BROKER_EPOCH
        self.end_offset = NO_OFFSET
        """Unknown until it has fetched from this leader in this epoch."""
        self.start_offset = NO_OFFSET
        self.last_caught_up_ms = NEVER
        self.refused_until_ms = NEVER
        """Not proposed for the ISR before: the store did not know it as what it says it is."""
        self._last_fetch_ms = NEVER
        self._last_fetch_leader_end_offset = 0

    def reset(self, now_ms: float, leader_end_offset: int, *, is_new_epoch: bool, is_in_sync: bool) -> None:
        """This broker leads (again): what a former epoch knew of the follower's log counts no more,
        a member of the ISR gets the full time to show that it keeps up, and any other has yet to show it.
        An earlier life of the follower stays over."""
        if is_new_epoch:
            self.end_offset = self.start_offset = NO_OFFSET
        self._last_fetch_leader_end_offset = leader_end_offset
        self._last_fetch_ms = self.last_caught_up_ms = now_ms if is_in_sync else NEVER

    def fetched(
        self, fetch_offset: int, start_offset: int, now_ms: float, leader_end_offset: int, broker_epoch: int
    ) -> None:
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif fetch_offset >= self._last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.end_offset = fetch_offset
        self.start_offset = start_offset
        self.broker_epoch = broker_epoch
        self._last_fetch_ms = now_ms
        self._last_fetch_leader_end_offset = leader_end_offset

    def still_caught_up(self, now_ms: float) -> None:
        """It fetched from the leader's end again."""
        self._last_fetch_ms = self.last_caught_up_ms = now_ms
        self._last_fetch_leader_end_offset = self.end_offset

    def is_caught_up(self, leader_end_offset: int, now_ms: float, lag_time_max_ms: float) -> bool:
        return self.end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_time_max_ms

    def __repr__(self) -> str:
        return f"RemoteReplica({self.broker_id}, end_offset={self.end_offset})"
