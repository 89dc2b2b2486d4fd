"""Noninterference: a user without rights cannot tell a resource that is hidden from one that is not there.

The same request names a hidden resource and one of the same length that does not exist, in turn, on one
broker. With the names put in place of each other, the answers are the same bytes. The times are compared by
the test of Mann and Whitney; only a difference that is certain and large is one.
"""

from __future__ import annotations

import math
import statistics
import struct
import time
from collections.abc import Iterator
from random import Random

from barnabas.core.errors import KafkaError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class
from tests.fuzz.connection import Closed, Connection
from tests.fuzz.pool import Pool
from tests.fuzz.steps import CASES
from tests.fuzz.values import Values
from tests.fuzz.world import World
from tests.support import hostile

HIDDEN = {b"hidden-t": b"hiddeo-t", b"hidden-g": b"hiddeo-g", b"hidden-x": b"hiddeo-x"}
"""Hidden names, and missing ones of the same length and order: responses are sorted by name."""
MAY_WAIT = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.FETCH, ApiKey.PRODUCE})
KEYS = tuple(sorted({key for key, _ in CASES} - {ApiKey.API_VERSIONS, *MAY_WAIT}))
DRAWS_MAX = 20
ROUNDS = 120
SURELY_P = 1e-9
RATIO_MIN = 1.25
DIFFERENCE_S_MIN = 100e-6


def complaints(world: World, seed: int, count: int) -> Iterator[str]:
    random = Random(seed)
    user = "mallory"
    connection = world.connect(user)
    for _ in range(count):
        key = random.choice(KEYS)
        version = random.choice(request_class(key).supported_versions())
        hidden = _hidden(key, version, random)
        if hidden is None:
            continue
        try:
            yield from _compared(connection, f"{key.name} v{version}", hidden, swapped(hidden))
        except (Closed, TimeoutError):
            connection.close()
            connection = world.connect(user)
    connection.close()


def _hidden(key: ApiKey, version: int, random: Random) -> bytes | None:
    """A request that names something hidden; None if hardly any does."""
    for _ in range(DRAWS_MAX):
        try:
            drawn = Values(random, Pool()).message(request_class(key), version)
            frame = hostile.frame_of(key, version, drawn)
        except KafkaError:
            continue
        if any(name in frame for name in HIDDEN):
            return frame
    return None


def swapped(frame: bytes) -> bytes:
    for hidden, absent in HIDDEN.items():
        frame = frame.replace(hidden, absent)
    return frame


def _compared(connection: Connection, name: str, hidden: bytes, absent: bytes) -> Iterator[str]:
    one, _ = timed(connection, hidden)
    other, _ = timed(connection, absent)
    if swapped(one) != other:
        yield f"told apart: {name}: {one.hex()[:400]} if hidden, {other.hex()[:400]} if not there"


def timing_complaints(world: World) -> Iterator[str]:
    """Of requests whose answer takes a look at the resource."""
    with world.connect("mallory") as connection:
        for name, hidden in probes():
            yield from differ_in_time(connection, name, hidden, swapped(hidden))


def probes() -> Iterator[tuple[str, bytes]]:
    random = Random(1)
    wanted = {
        *(ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH, ApiKey.LIST_OFFSETS, ApiKey.DESCRIBE_TRANSACTIONS),
        *(ApiKey.METADATA, ApiKey.DELETE_GROUPS, ApiKey.DESCRIBE_PRODUCERS, ApiKey.HEARTBEAT),
    }
    for key in sorted(wanted):
        version = request_class(key).supported_versions()[-1]
        for _ in range(200):
            frame = hostile.frame_of(
                key, version, Values(random, Pool()).message(request_class(key), version)
            )
            if any(name in frame for name in HIDDEN) and len(frame) < 400:
                yield f"{key.name} v{version}", frame
                break


def differ_in_time(connection: Connection, name: str, hidden: bytes, absent: bytes) -> Iterator[str]:
    pairs = [(timed(connection, hidden)[1], timed(connection, absent)[1]) for _ in range(ROUNDS)]
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    slow, fast = sorted((statistics.median(one), statistics.median(other)), reverse=True)
    if mann_whitney_p(one, other) < SURELY_P and slow > RATIO_MIN * fast and slow - fast > DIFFERENCE_S_MIN:
        yield f"timing: {name} takes {slow * 1e6:.0f} or {fast * 1e6:.0f} µs: whether a name exists shows"


def timed(connection: Connection, frame: bytes) -> tuple[bytes, float]:
    struct.unpack_from(">i", frame, 4)
    began_s = time.perf_counter()
    connection.send(frame)
    answer = connection.one_answer()
    return answer, time.perf_counter() - began_s


def mann_whitney_p(one: list[float], other: list[float]) -> float:
    """Of two-sided samples, by the normal approximation."""
    ranked = sorted([(value, 0) for value in one] + [(value, 1) for value in other])
    rank_sum = sum(rank for rank, (_, which) in enumerate(ranked, 1) if which == 0)
    n, m = len(one), len(other)
    mean = n * (n + m + 1) / 2
    deviation = math.sqrt(n * m * (n + m + 1) / 12)
    return math.erfc(abs(rank_sum - mean) / deviation / math.sqrt(2))
