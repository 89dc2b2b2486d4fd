"""Report of a failed test: the last requests, the fault rules and the log of each broker that it used.

The brokers of this process are remembered weakly, with the number of requests that each has received. So a
test framework knows which of them a test used: those that started in it, and those that it sent requests to.
The last ones that a test started are kept until the next test begins, because a test may end them before its
failure is reported.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from barnabas.testing.faults.request_log import SeenRequest
from barnabas.testing.faults.rules import Faults

PLUGIN: Final = "barnabas.testing.plugin"
KEPT_BROKERS_MAX: Final = 8
SHOWN_REQUESTS_MAX: Final = 20
SHOWN_LINES_MAX: Final = 40
SHOWN_CHARS_MAX: Final = 200


class Remembered(Protocol):
    """A broker of a test."""

    faults: Faults

    @property
    def bootstrap(self) -> str: ...

    @property
    def requests_received(self) -> int: ...

    def requests(self, api: str | None = None, *, client_id: str | None = None) -> list[SeenRequest]: ...

    def log_lines(self) -> list[str]: ...


Section = tuple[str, str]
"""Title and text. pytest-xdist sends no other class from a worker."""


_lock = threading.Lock()
_numbers = itertools.count()
_brokers: WeakValueDictionary[int, Any] = WeakValueDictionary()


_of_test: deque[Remembered] = deque(maxlen=KEPT_BROKERS_MAX)
"""Brokers that the present test started."""


def remember(broker: Remembered) -> None:
    with _lock:
        _brokers[next(_numbers)] = broker
        if PLUGIN in sys.modules:  # nothing else asks for them
            _of_test.append(broker)


def begin_test() -> dict[int, int]:
    """Numbers of requests that the brokers of this process have received before a test."""
    with _lock:
        _of_test.clear()
        return {number: broker.requests_received for number, broker in _brokers.items()}


def used_since(before: Mapping[int, int]) -> Iterator[Remembered]:
    """Brokers that have started since, or have received requests."""
    with _lock:
        known = sorted(_brokers.items())
    for number, broker in known:
        if broker.requests_received != before.get(number, -1):
            yield broker


def sections(broker: Remembered, name: str) -> list[Section]:
    """The last requests, the fault rules if there are any, and the end of the log."""
    requests = [_shown(each) for each in broker.requests()[-SHOWN_REQUESTS_MAX:]]
    rules = [
        f"{each}: {each.hits} hits of {each.matches} matches"
        for each in broker.faults.with_those_of_cluster()
    ]
    found = [
        (f"last requests to {name}", "\n".join(requests) or "none"),
        (f"log of {name}", "\n".join(broker.log_lines()[-SHOWN_LINES_MAX:]) or "empty"),
    ]
    if rules:
        found.insert(1, (f"fault rules of {name}", "\n".join(rules)))
    return found


def _shown(request: SeenRequest) -> str:
    message = str(request.message)[:SHOWN_CHARS_MAX]
    return f"{request.api} v{request.version} of {request.client_id}: {message}"
