"""Steps on their way to a broker: many at a time over several connections, with answers matched to requests.

Steps are sent up to the next pause before their answers are waited for. JoinGroup and SyncGroup may wait for
other members, so their connections delay no other; one that stays silent too long is closed, as clients do.
"""

from __future__ import annotations

import select
import struct
import time
from collections import deque
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from barnabas.protocol.schema.message import Message
from tests.fuzz.connection import Closed, Connection
from tests.fuzz.plan import SOCKETS, WINDOW, Rates, new_cast, plan
from tests.fuzz.pool import Pool
from tests.fuzz.reading import Reader, read_answer
from tests.fuzz.steps import (
    ASK,
    CLOSE,
    KILL,
    MAY_WAIT,
    MEMBER_SLOTS,
    PAUSE,
    RESTART,
    SLOTS,
    Recording,
    Step,
)
from tests.fuzz.world import World
from tests.support import wire

SILENT_WINDOWS_MAX = 2
SILENT_TURNS_MAX = 40
"""Of a member, whose turns are short."""
CHECKED_REQUESTS = 480
"""Between two looks of the judges, within a sequence."""
WINDOW_S_MAX = 10.0
UNANSWERED_WINDOWS_MAX = 3


class Exchange(NamedTuple):
    """A request and its answer."""

    step: Step
    answer: bytes
    message: Message | None
    """None if the answer cannot be read, or the same bytes were read before."""


class _Slot:
    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.outbox = bytearray()
        """Frames of the window, sent together."""
        self.pending: deque[tuple[int, Step]] = deque()
        self.silent = 0


class Sequence:
    """Sends steps and hands every exchange to `seen`. `restart` ends the broker, by SIGKILL if asked to, and
    starts it again. `checked` judges the broker after each few hundred requests: whether to go on."""

    def __init__(
        self,
        world: World,
        seen: Callable[[Exchange], None],
        restart: Callable[[bool], None] | None = None,
        checked: Callable[[], bool] = lambda: True,
    ) -> None:
        self._world = world
        self._seen = seen
        self._restart = restart
        self._checked = checked
        self._slots = [_Slot() for _ in SLOTS]
        self._pool = Pool()
        self._cast = new_cast(Random(0))
        self._reader = Reader()
        self.sent = 0
        self.answered = 0
        self.sent_bytes = 0
        self.broken_answers: list[str] = []
        self._unanswered_windows = 0

    @property
    def is_stuck(self) -> bool:
        """Whether the broker answers nothing any more: the judge of waits says for how long."""
        return self._unanswered_windows > UNANSWERED_WINDOWS_MAX

    def run_drawn(self, seed: int, count: int, rates: Rates = SOCKETS) -> Recording:
        random = Random(seed)
        self._cast = new_cast(random)
        steps: list[Step] = []
        checked_at = 0
        for step in plan(random, self._pool, self._cast, count, rates):
            steps.append(step)
            self._do(step)
            if self.is_stuck:
                break
            if step.do == PAUSE and self.sent - checked_at >= CHECKED_REQUESTS:
                checked_at = self.sent
                if not self._checked():
                    break
        self.close()
        return Recording(seed, steps, self._pool.learned)

    def replay(self, recording: Recording) -> None:
        for at, step in enumerate(recording.steps):
            self._do(step._replace(frame=self._with_own_ids(step, recording.learned)))
            if at % WINDOW == WINDOW - 1 or at + 1 == len(recording.steps) or len(recording.steps) < WINDOW:
                self._gather()
        self.close()

    def _do(self, step: Step) -> None:
        if step.do == PAUSE:
            self._gather(step.pause_ms / 1_000)
        elif step.do in (RESTART, KILL):
            self.close()
            if self._restart is not None:
                self._restart(step.do == KILL)
        elif step.do == CLOSE:
            self._flush(self._slots[step.slot])
            self._close(self._slots[step.slot])
        else:
            self._send(step)

    def _with_own_ids(self, step: Step, theirs: list[bytes]) -> bytes:
        frame = step.frame
        for their, own in zip(theirs[: step.known], self._pool.learned, strict=False):
            if len(their) == len(own):
                frame = frame.replace(their, own)
        return frame

    def _send(self, step: Step) -> None:
        slot = self._slots[step.slot]
        try:
            if slot.connection is None:
                slot.connection = self._world.connect(step.user)
        except TimeoutError:
            self._unanswered_windows += 1
            self._close(slot)
            return
        except (Closed, OSError, EOFError):
            self._close(slot)
            return
        self.sent += 1
        self.sent_bytes += len(step.frame)
        if step.is_answered and step.do == ASK:
            slot.pending.append((struct.unpack_from(">i", step.frame, 4)[0], step))
        slot.outbox += wire.framed(step.frame)

    def _gather(self, pause_s: float = 0.0) -> None:
        """Send what the window has, until everything is answered that does not wait for others, and for the
        pause at least."""
        began_s = time.monotonic()
        while (spent_s := time.monotonic() - began_s) < WINDOW_S_MAX:
            slots = {slot.connection.fileno(): slot for slot in self._slots if slot.connection is not None}
            writing = [number for number, slot in slots.items() if slot.outbox]
            reading = [number for number, slot in slots.items() if slot.pending]
            waits = all(slots[number].pending[0][1].key in MAY_WAIT for number in reading)
            if not writing and waits and spent_s >= pause_s:
                break
            patience_s = max(pause_s - spent_s, 0.0) or 0.2
            readable, writable, _ = select.select(reading, writing, [], patience_s)
            for number in writable:
                self._flush(slots[number])
            for number in readable:
                self._take(slots[number])
        else:
            self._unanswered_windows += 1
        for number, slot in enumerate(self._slots):
            is_member = number in MEMBER_SLOTS
            if not slot.pending:
                slot.silent = 0
            elif is_member or not pause_s:  # turns of members are no windows
                slot.silent += 1
            if slot.silent > (SILENT_TURNS_MAX if is_member else SILENT_WINDOWS_MAX):
                self._close(slot)

    def _flush(self, slot: _Slot) -> None:
        """As much as the broker takes."""
        if slot.connection is None or not slot.outbox:
            return
        try:
            del slot.outbox[: slot.connection.send_some(slot.outbox)]
        except Closed:
            self._close(slot)

    def _take(self, slot: _Slot) -> None:
        if slot.connection is None:
            return
        try:
            answers = slot.connection.answers(0.0)
        except Closed:
            self._close(slot)
            return
        for answer in answers:
            step = step_of(slot.pending, answer)
            if step is not None:
                self._matched(step, answer)

    def _matched(self, step: Step, answer: bytes) -> None:
        self._unanswered_windows = 0
        self.answered += 1
        if step.slot in MEMBER_SLOTS:  # a member needs its answer, also where another had the same
            message, complaint = read_answer(step, answer)
            self._cast.answered(step.slot, step.key, message)
        else:
            message, complaint = self._reader.read(step, answer)
        if complaint is not None:
            self.broken_answers.append(complaint)
        if message is not None:
            self._pool.learn(message)
        self._seen(Exchange(step, answer, message))

    def _close(self, slot: _Slot) -> None:
        self._cast.closed(self._slots.index(slot))
        if slot.connection is not None:
            slot.connection.close()
        slot.connection = None
        slot.outbox.clear()
        slot.pending.clear()
        slot.silent = 0

    def close(self) -> None:
        for slot in self._slots:
            self._close(slot)


def step_of(pending: deque[tuple[int, Step]], answer: bytes) -> Step | None:
    """The step that is answered. Steps before it stay without an answer; None: the answer is to bytes that
    were changed."""
    (correlation_id,) = struct.unpack_from(">i", answer)
    if pending and pending[0][0] == correlation_id:
        return pending.popleft()[1]
    if not any(each == correlation_id for each, _ in pending):
        return None
    while (found := pending.popleft())[0] != correlation_id:
        pass
    return found[1]
