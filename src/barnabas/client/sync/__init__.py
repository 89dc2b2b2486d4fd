"""Synchronous face of the client library, for scripts and threads: the same clients, without `await`.

    from barnabas.client.sync import Producer

One loop in one background thread serves all clients of a process (`loop_thread`). A call crosses to that
thread once and waits there, so its cost is per call: `send_many` crosses once for many records. Clients may
be shared between threads. After a fork the child starts a thread of its own and needs clients of its own:
those of the parent refuse its calls.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.sync.admin import Admin
    from barnabas.client.sync.consumer import Consumer
    from barnabas.client.sync.producer import Producer

_PLACES = {
    "Admin": "barnabas.client.sync.admin",
    "Consumer": "barnabas.client.sync.consumer",
    "Producer": "barnabas.client.sync.producer",
}

__all__ = ["Admin", "Consumer", "Producer"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
