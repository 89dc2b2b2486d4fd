"""The life of one broker under the fuzzer: sequences one after the other, judged; then a restart."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.hidden import hide
from tests.fuzz.judges import answers, interference, latency, restart
from tests.fuzz.judges.log import Log
from tests.fuzz.judges.memory import Memory
from tests.fuzz.plan import SOCKETS, Rates
from tests.fuzz.prober import Prober
from tests.fuzz.sequence import Exchange, Sequence
from tests.fuzz.steps import Recording
from tests.fuzz.world import World, grant, prepare

INTERFERENCE_REQUESTS = 300


class Failure(NamedTuple):
    complaints: list[str]
    recording: Recording
    requests: int
    """Sent in this life until it was noticed."""

    @property
    def kinds(self) -> set[str]:
        return {complaint.partition(":")[0] for complaint in self.complaints}


class Life:
    def __init__(self, world: World) -> None:
        self.world = world
        self.prober = Prober(world.port, world.pid)
        self.memory = Memory(world)
        self.log = Log(world)
        self.requests = 0
        self.answered = 0
        self.restarts = 0
        self._checked_bytes = 0
        self._seen: list[str] = []
        self._sequence: Sequence | None = None

    def play(self, seed: int, count: int, rates: Rates = SOCKETS) -> Failure | None:
        """A drawn sequence."""
        grant(self.world)
        sequence = self._new_sequence()
        recording = sequence.run_drawn(seed, count, rates)
        return self._failure(sequence, recording)

    def replay(self, recording: Recording) -> Failure | None:
        sequence = self._new_sequence()
        sequence.replay(recording)
        return self._failure(sequence, recording)

    def _new_sequence(self) -> Sequence:
        self._sequence = Sequence(self.world, self._judge, self._restart, self._check)
        self._checked_bytes = 0
        self.memory.begin()
        return self._sequence

    def _restart(self, is_killed: bool) -> None:
        """In the middle of a sequence, with its connections closed: what the broker knew, it knows again."""
        assert self._sequence is not None
        self.restarts += 1
        self._judge_memory(self._sequence)
        self._seen += latency.complaints(self.prober.taken())
        self.prober.close()
        self._seen += self._restarted(is_killed=is_killed)
        if self.world.is_running:
            self.prober = Prober(self.world.port, self.world.pid)
            self.memory.begin_again()

    def _check(self) -> bool:
        """In the middle of a sequence: whether it may go on."""
        assert self._sequence is not None
        if self.world.is_running:
            self._judge_memory(self._sequence)
            self.memory.begin()
            self._seen += self.log.complaints()
        return self.world.is_running and not self._seen and not self._sequence.broken_answers

    def _judge_memory(self, sequence: Sequence) -> None:
        """By the bytes that were sent since the last time."""
        sent_bytes = sequence.sent_bytes - self._checked_bytes
        self._checked_bytes = sequence.sent_bytes
        self._seen += self.memory.after(sent_bytes)

    def interfere(self, seed: int) -> Failure | None:
        self.requests += 2 * INTERFERENCE_REQUESTS
        self.answered += 2 * INTERFERENCE_REQUESTS
        hide(self.world)
        found = list(interference.complaints(self.world, seed, INTERFERENCE_REQUESTS))
        found += interference.timing_complaints(self.world)
        found += self.log.complaints()
        return Failure(found, Recording(seed, [], []), self.requests) if found else None

    def end(self) -> Failure | None:
        """The memory is back, SIGTERM works, the next start loads everything, and it knows what it knew."""
        found = [*self.memory.at_the_end(), *self._restarted(is_killed=False), *self.log.complaints()]
        return Failure(found, Recording(0, [], []), self.requests) if found else None

    def _restarted(self, *, is_killed: bool) -> Iterator[str]:
        try:
            before = restart.ask(self.world)
        except (AssertionError, OSError, TimeoutError) as error:
            yield f"coordinators: {error}"
            before = None
        complaint = None if is_killed else self.world.stop()
        self.world.kill()
        if complaint is not None:
            yield f"stopping: {complaint}"
        yield from restart.unreadable(self.world.directory)
        try:
            self.world.start()
            after = restart.ask(self.world)
        except (AssertionError, RuntimeError, OSError, TimeoutError) as error:
            yield f"start: {error}"
            return
        if before is not None:
            yield from restart.complaints(before, after)

    def _judge(self, exchange: Exchange) -> None:
        self._seen += answers.complaints(exchange)

    def _failure(self, sequence: Sequence, recording: Recording) -> Failure | None:
        self.requests += sequence.sent
        self.answered += sequence.answered
        if self.world.is_running:
            self._judge_memory(sequence)
        found, self._seen = self._seen, []
        if not self.world.is_running:
            found.append(f"ended: the broker is gone:\n{self.world.log_text()[-2_000:]}")
        else:
            found += latency.silence(self.prober)
        found += [f"broken answer: {each}" for each in sequence.broken_answers]
        found += latency.complaints(self.prober.taken())
        found += self.log.complaints()
        return Failure(found, recording._replace(complaints=found), self.requests) if found else None

    def close(self) -> None:
        self.prober.close()
        self.world.kill()


@contextmanager
def life(bug: str | None = None) -> Iterator[Life]:
    directory = Path(tempfile.mkdtemp(prefix="fuzz-"))
    world = World(directory, bug)
    try:
        world.start()
        prepare(world)
        hide(world)
        lived = Life(world)
        try:
            yield lived
        finally:
            lived.close()
    finally:
        world.kill()
        shutil.rmtree(directory, ignore_errors=True)


def shrink(failed: Failure, trials_max: int, bug: str | None = None) -> Failure:
    """Leave out steps, halves first, as long as it fails in the same way. Each trial is a new life."""
    smallest = failed
    size = max(len(failed.recording.steps) // 2, 1)
    trials = 0
    while trials < trials_max:
        at = 0
        while at < len(smallest.recording.steps) and trials < trials_max:
            trials += 1
            fewer = smallest.recording.without(at, at + size)
            again = tried(fewer, bug)
            if again is not None and again.kinds & failed.kinds:
                smallest = again
            else:
                at += size
        if size == 1:
            break
        size //= 2
    return smallest


def tried(recording: Recording, bug: str | None = None) -> Failure | None:
    """A recording in a life of its own, to the end."""
    with life(bug) as lived:
        return lived.replay(recording) or lived.end()
