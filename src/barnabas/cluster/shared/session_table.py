"""Living sessions of the shared store, and the time that each has left. No I/O.

A session ends when its owner closes it, when it is silent for its timeout, or when a supervisor reports that
its process has ended. The last is quick and certain. The timeout is for processes that hang.

Time counts only while the store itself runs. After a stop, or a long wait for a processor, the heartbeats
of its brokers are unread in their sockets. The store must not take that for silence. So each
`tick` counts at most twice its period, and a store that starts gives every session its whole time.
Counted time is never longer than real time: no session ends before its lease (`coordination.session_lease`).
"""

from __future__ import annotations

from typing import Final

from barnabas.cluster.embedded.durable_sessions import DurableSession

TICK_MS: Final = 200
TICKS_COUNTED_MAX: Final = 2
TIMEOUT_MS_MIN: Final = 2 * TICK_MS
TIMEOUT_MS_MAX: Final = 120_000


def granted_timeout_ms(wanted_ms: int) -> int:
    return max(TIMEOUT_MS_MIN, min(wanted_ms, TIMEOUT_MS_MAX))


class SessionTable:
    def __init__(self, now_ms: float, tick_ms: int) -> None:
        self._counted_ms_max = TICKS_COUNTED_MAX * tick_ms
        self._ticked_ms = now_ms
        self._counted_ms = 0.0
        """Time that has counted up to the last tick."""
        self._sessions: dict[int, DurableSession] = {}
        self._heard_ms: dict[int, float] = {}

    def __contains__(self, session_id: int) -> bool:
        return session_id in self._sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def __getitem__(self, session_id: int) -> DurableSession:
        return self._sessions[session_id]

    def add(self, session_id: int, session: DurableSession, now_ms: float) -> None:
        self._sessions[session_id] = session
        self.hear(session_id, now_ms)

    def remove(self, session_id: int) -> None:
        del self._sessions[session_id], self._heard_ms[session_id]

    def hear(self, session_id: int, now_ms: float) -> None:
        """Note a message of a living session."""
        self._heard_ms[session_id] = self._counted_ms + now_ms - self._ticked_ms

    def tick(self, now_ms: float) -> list[int]:
        """Count the time since the last tick; returns the sessions that were silent for too long."""
        self._counted_ms += min(now_ms - self._ticked_ms, self._counted_ms_max)
        self._ticked_ms = now_ms
        return [
            session_id
            for session_id, session in self._sessions.items()
            if self._counted_ms - self._heard_ms[session_id] > session.timeout_ms
        ]

    def of_process(self, process: str) -> list[int]:
        """Sessions of a supervised process."""
        return [each for each, session in self._sessions.items() if session.process == process != ""]

    def of_supervised(self) -> list[int]:
        return [each for each, session in self._sessions.items() if session.process]
