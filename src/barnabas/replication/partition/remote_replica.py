"""State of one follower as its leader knows it from the follower's fetches.

A fetch from offset N means that the follower has everything below N, so its log ends at N. Keeping up is a
matter of time, not of distance. A follower is caught up at a moment if it then had everything that the leader
had. A follower that fetches from the leader's end is caught up now. One that fetches from the leader's end at
its previous fetch was caught up then, however much was appended since. So a burst of appends removes no
follower from the ISR.
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
        """Not proposed for the ISR before: the store has another registration of it."""
        self._last_fetch_ms = NEVER
        self._last_fetch_leader_end_offset = 0

    def reset(self, now_ms: float, leader_end_offset: int, *, is_new_epoch: bool, is_in_sync: bool) -> None:
        """Start over when this broker leads (again). Positions from a previous epoch no longer count. An ISR
        member gets the full time to keep up; any other follower has to catch up first. An earlier
        registration of the follower stays over."""
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
        """Note another fetch from the leader's end."""
        self._last_fetch_ms = self.last_caught_up_ms = now_ms
        self._last_fetch_leader_end_offset = self.end_offset

    def is_caught_up(self, leader_end_offset: int, now_ms: float, lag_time_max_ms: float) -> bool:
        return self.end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_time_max_ms

    def __repr__(self) -> str:
        return f"RemoteReplica({self.broker_id}, end_offset={self.end_offset})"
