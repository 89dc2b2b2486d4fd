"""Faults of an embedded session: expiry, a new session, a lost connection.

The embedded store never ends a session of its own process. ZooKeeper does, so tests of its users do it here.
"""

from __future__ import annotations

import math

from barnabas.cluster.coordination.contract import SessionState
from barnabas.cluster.embedded.session import EmbeddedSession


async def expire_session(session: EmbeddedSession) -> None:
    """End the session as ZooKeeper ends one that was silent for too long."""
    ended = session.store.end_session(session.session_id)
    session._lease_expires_ms = -math.inf
    session.lose()
    await ended


def renew_session(session: EmbeddedSession) -> None:
    """Continue in a new session after LOST."""
    assert session.state is SessionState.LOST
    session._session_id = session.store.new_session_id()
    session._lease_expires_ms = math.inf
    session._status.become(SessionState.CONNECTED)


def suspend_session(session: EmbeddedSession) -> None:
    """Behave as if the store were unreachable."""
    session._status.become(SessionState.SUSPENDED)


def resume_session(session: EmbeddedSession) -> None:
    assert session.state is SessionState.SUSPENDED
    session._status.become(SessionState.CONNECTED)
