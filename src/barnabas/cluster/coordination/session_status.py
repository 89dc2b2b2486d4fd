"""Session state of a coordination client, and its listeners."""

from __future__ import annotations

from barnabas.cluster.coordination.contract import (
    ConnectionLoss,
    SessionClosed,
    SessionExpired,
    SessionState,
    StateListener,
)


class SessionStatus:
    def __init__(self, state: SessionState) -> None:
        self.state = state
        self._listeners: list[StateListener] = []

    def add_listener(self, listener: StateListener) -> None:
        self._listeners.append(listener)

    def become(self, state: SessionState) -> None:
        if state is not self.state:
            self.state = state
            for listener in tuple(self._listeners):
                listener(state)

    def check_connected(self) -> None:
        """Raise the error that operations fail with in any other state."""
        match self.state:
            case SessionState.LOST:
                raise SessionExpired
            case SessionState.CLOSED:
                raise SessionClosed
            case SessionState.SUSPENDED:
                raise ConnectionLoss
            case SessionState.CONNECTED:
                pass
