"""The steps of one sequence, drawn one by one while their answers come in.

A sequence is made of windows (many requests at a time, of any content), of scenes (members of a group, turn
by turn), and of restarts of the broker. A PAUSE asks its player for all answers that can be had. The player
feeds answers to the pool and to the cast before it draws the next step, so later steps build on them. Real
sockets and the simulator play the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from barnabas.core.errors import KafkaError
from tests.fuzz.frames import Drawing
from tests.fuzz.members import Cast
from tests.fuzz.pool import Pool
from tests.fuzz.steps import (
    ADMIN_SLOT,
    ASK,
    CLOSE,
    KILL,
    MEMBER_SLOTS,
    PAUSE,
    RESTART,
    Step,
    draw,
    draw_damaged,
)
from tests.support import hostile

WINDOW = 96
"""Steps of a replay before their answers are waited for."""
DAMAGED = 0.12
CLOSED = 0.06
"""Of the connections, after each window."""
LAST_MS = 2
"""For a broker to read frames that may have no answer."""


class Rates(NamedTuple):
    """Frequencies of the parts of a sequence, and lengths of its pauses."""

    scenes: float = 0.5
    """Of scenes among windows."""
    restarts: float = 0.0
    """Of restarts after each of them."""
    pauses_ms: tuple[int, ...] = (5, 20, 20, 60)
    turns_max: int = 24
    window: int = 96
    """Requests on their way at a time."""
    large: float = 0.02
    """Of requests with long text and many elements."""


SOCKETS = Rates(restarts=0.02)
LONG = Rates(scenes=0.01, restarts=0.003, window=288, large=0.004)
"""For millions of requests: members take their turns between windows, which last as long as a pause."""
SIMULATED = Rates(restarts=0.15, pauses_ms=(1, 20, 500, 5_000, 60_000))
"""Virtual time costs nothing: a pause is as long as a session or a rebalance may be."""


def plan(random: Random, pool: Pool, cast: Cast, count: int, rates: Rates) -> Iterator[Step]:
    """At least `count` requests."""
    sent = 0
    drawing = Drawing(random, pool, rates.large)
    while sent < count:
        scene = random.random() < rates.scenes
        for step in _scene(drawing, cast, rates, sent) if scene else _window(drawing, cast, rates, sent):
            sent += step.do != PAUSE
            yield step
        if random.random() < rates.restarts:
            yield Step(random.choice((RESTART, KILL)))


def new_cast(random: Random) -> Cast:
    return Cast(random, MEMBER_SLOTS)


def _window(drawing: Drawing, cast: Cast, rates: Rates, sent: int) -> Iterator[Step]:
    """Requests and their answers; then those that the broker may answer by closing their connection.

    A connection that is closed loses all answers on their way, so it is not used again.
    """
    random = drawing.random
    for step in _turn(drawing, cast, sent):
        sent += 1
        yield step
    last = []
    for _ in range(rates.window):
        sent += 1
        step = draw(drawing, sent)
        if step.is_answered:
            yield step
        else:
            last.append(step)
    yield Step(PAUSE)
    for slot in range(ADMIN_SLOT + 1):
        if random.random() < DAMAGED:
            sent += 1
            last.append(draw_damaged(drawing, slot, sent))
    yield from last
    closed = {step.slot for step in last}
    closed |= {slot for slot in range(ADMIN_SLOT + 1) if random.random() < CLOSED}
    yield Step(PAUSE, pause_ms=LAST_MS if last else 0)
    for slot in sorted(closed):
        yield Step(CLOSE, slot)


def _scene(drawing: Drawing, cast: Cast, rates: Rates, sent: int) -> Iterator[Step]:
    random = drawing.random
    for _ in range(random.randint(4, rates.turns_max)):
        for step in _turn(drawing, cast, sent):
            sent += 1
            yield step
        yield Step(PAUSE, pause_ms=random.choice(rates.pauses_ms))


def _turn(drawing: Drawing, cast: Cast, sent: int) -> Iterator[Step]:
    for slot, (key, version, message) in cast.draw(drawing.random, drawing.pool):
        sent += 1
        try:
            frame = hostile.frame_of(key, version, message, sent, "fuzz")
        except KafkaError:  # the drawn value does not fit into this version
            cast.closed(slot)
            continue
        yield Step(ASK, slot, key, version, frame, len(drawing.pool.learned))
