"""Waiting for events on a machine that may be slow.

A test waits for an event, never for a duration, and gives up only after `PATIENCE_S`: on a machine with ten
busy processes per core a healthy broker needs seconds for an answer, and only a hang needs minutes.

A client's own timeout is no failure while a test waits. librdkafka chooses one broker for a request such as
Metadata and keeps it: a broker that was killed a moment ago holds the request until its timeout, although the
other brokers answer. The next attempt chooses again. Such an exception counts as "not yet", and the last one
becomes the cause of the failure when the patience ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from confluent_kafka import KafkaException

PATIENCE_S = 120.0
PATIENCE_MS = 120_000
ATTEMPT_S = 10.0
"""Timeout of one attempt of a client inside a wait, so that the next attempt may choose another broker."""
POLL_S = 0.02
NOT_YET = (KafkaException, OSError, EOFError)

Found = TypeVar("Found")


def eventually(
    look: Callable[[], Found],
    what: str = "",
    *,
    timeout_s: float = PATIENCE_S,
    retried: tuple[type[Exception], ...] = NOT_YET,
    report: Callable[[], str] = str,
) -> Found:
    """The first true value of `look`; `report` is added to the failure, such as the output of brokers."""
    deadline = time.monotonic() + timeout_s
    while True:
        last: Exception | None = None
        try:
            if found := look():
                return found
        except retried as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(_expired(what or str(look), timeout_s, last, report())) from last
        time.sleep(POLL_S)


async def eventually_async(
    look: Callable[[], Awaitable[Found]],
    what: str = "",
    *,
    timeout_s: float = PATIENCE_S,
    retried: tuple[type[Exception], ...] = NOT_YET,
) -> Found:
    """As `eventually`, beside other tasks of the loop. The patience also ends an attempt that hangs."""
    last: Exception | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    if found := await look():
                        return found
                    last = None
                except retried as error:
                    last = error
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise AssertionError(_expired(what or str(look), timeout_s, last, "")) from last


def _expired(what: str, timeout_s: float, last: Exception | None, report: str) -> str:
    reason = "" if last is None else f"; the last attempt raised {last!r}"
    return f"{what}: not within {timeout_s:g} s{reason}\n{report}"
