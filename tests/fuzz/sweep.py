"""`python -m tests.fuzz.sweep`: no single request, and no sequence of ten, stops or fills a broker.

Every API and version gets requests with fields at their edges, its largest requests, and sequences of ten,
for each user. HTTP servers (metrics, console, control, pipelines) get requests at the edges of HTTP. During
each, the longest turn of the loop takes less than 100 ms of processor time, and the process grows by less
than 64 MB. Every complaint, the largest of both numbers, and a line of counts are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.requests.registry import Api
from tests.fuzz import counts, frames, largest
from tests.fuzz.connection import Closed, Connection
from tests.fuzz.hidden import hide
from tests.fuzz.http_edges import Service, hostile_requests, odd_requests, services
from tests.fuzz.pool import Pool
from tests.fuzz.reading import read_answer
from tests.fuzz.steps import ASK, CASES, NOT_BY_ADMIN, SASL, Step
from tests.fuzz.turns import Turns
from tests.fuzz.world import World, prepare

TURN_S_MAX = 0.1
GROWTH_BYTES_MAX = 64 << 20
EDGES, LARGE_EDGES, SEQUENCES = 6, 2, 2
TOGETHER = 10
ELEMENTS_MAX = 100_000
ANSWER_S_MAX = 120.0
SHORT_ANSWER_S = 0.5
"""For a request that may wait for an event, or has no answer."""
USERS = ("mallory", "alice", "admin")
NOT_ASKED = SASL | {ApiKey.CONTROLLED_SHUTDOWN}
UNHURRIED = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.PRODUCE})
PART = "sweep"
SHOWN = 12
FAILED = b"HTTP/1.1 500"


class Measured(NamedTuple):
    name: str
    turn_s: float
    grown_bytes: int
    frames: tuple[bytes, ...]
    fault: str = ""
    """Of the answer, or of the log."""


class Process:
    """One process under measurement."""

    def __init__(self, pid: int, turns: Turns) -> None:
        self._pid = pid
        self._turns = turns
        self._before_bytes = 0

    def begin(self) -> None:
        self._turns.forget()
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")
        self._before_bytes = self._bytes("VmRSS")

    def measured(self, name: str, *sent: bytes) -> Measured:
        return Measured(name, self._turns.longest_s, self._bytes("VmHWM") - self._before_bytes, sent)

    def _bytes(self, field: str) -> int:
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


class Sweep:
    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = Random(seed)
        self._pool = Pool()
        self._drawing = frames.Drawing(self._random, self._pool)
        self._process = Process(world.pid, Turns(world.turns_path))
        self._connections: dict[str, Connection] = {}
        self.requests = 0

    def edges(self, apis: list[Api]) -> Iterator[Measured]:
        """Requests with fields at their edges, one at a time."""
        for api in apis:
            for version in api.versions:
                for user in USERS:
                    if user == "admin" and api.key in NOT_BY_ADMIN:
                        continue
                    for number in range(EDGES + LARGE_EDGES):
                        self._drawing.is_large = number >= EDGES
                        yield self._single(api.key, version, user)

    def sequences(self, apis: list[Api]) -> Iterator[Measured]:
        """Ten requests of any API at once, the first of each API and version in turn."""
        every = [case for case in CASES if case[0] not in NOT_ASKED]
        for api in apis:
            for version in api.versions:
                for user in ("mallory", "alice"):
                    for _ in range(SEQUENCES):
                        others = [self._random.choice(every) for _ in range(TOGETHER - 1)]
                        yield self._together(user, [(api.key, version), *others])

    def largest(self, apis: list[Api], versions: str) -> Iterator[Measured]:
        """The largest requests that the limits allow."""
        for api in apis:
            for version in api.versions if versions == "all" else (api.versions[-1],):
                for name, candidates in largest.frames(api.key, version, ELEMENTS_MAX):
                    for user in ("mallory", "alice"):
                        yield self._largest(f"{name}, {user}", user, candidates)

    def _single(self, key: ApiKey, version: int, user: str) -> Measured:
        frame = self._frame(key, version)
        self._process.begin()
        answer = self._ask(user, frame, SHORT_ANSWER_S if key in UNHURRIED else ANSWER_S_MAX)
        if answer is not None and len(answer) < 1 << 20:
            message, _ = read_answer(Step(ASK, 0, key, version, frame), answer)
            if message is not None:
                self._pool.learn(message)
        return self._process.measured(f"{key.name} v{version}, {user}", frame)

    def _frame(self, key: ApiKey, version: int) -> bytes:
        self.requests += 1
        return frames.frame(self._drawing, key, version, self.requests, b"fuzz")

    def _together(self, user: str, cases: list[tuple[ApiKey, int]]) -> Measured:
        sent = []
        for key, version in cases:
            self._drawing.is_large = self._random.random() < 0.3
            sent.append(self._frame(key, version))
        self._process.begin()
        with contextlib.suppress(Closed, TimeoutError, OSError):
            connection = self._connection(user)
            for frame in sent:
                connection.send(frame)
            answered = 0
            while answered < TOGETHER:
                found = connection.answers(SHORT_ANSWER_S)
                if not found:
                    break
                answered += len(found)
        self._close(user)
        return self._process.measured(f"{cases[0][0].name} v{cases[0][1]} and nine others, {user}", *sent)

    def _largest(self, name: str, user: str, candidates: list[bytes]) -> Measured:
        self._process.begin()
        for frame in candidates:
            self.requests += 1
            if self._ask(user, frame, ANSWER_S_MAX) is not None:
                return self._process.measured(name, frame)
        return self._process.measured(name)

    def _ask(self, user: str, frame: bytes, patience_s: float) -> bytes | None:
        """The answer; None if the connection is closed instead, or no answer comes."""
        try:
            connection = self._connection(user)
            connection.send(frame)
            deadline_s = time.monotonic() + patience_s
            while time.monotonic() < deadline_s:
                found = connection.answers(patience_s)
                if found:
                    return found[-1]
        except (Closed, TimeoutError, OSError):
            pass
        self._close(user)
        return None

    def _connection(self, user: str) -> Connection:
        if user not in self._connections:
            self._connections[user] = self._world.connect(user, ANSWER_S_MAX)
        return self._connections[user]

    def close(self) -> None:
        for user in list(self._connections):
            self._close(user)

    def _close(self, user: str) -> None:
        connection = self._connections.pop(user, None)
        if connection is not None:
            connection.close()


def over_http(service: Service) -> Iterator[Measured]:
    yield from _over(service, hostile_requests(service))


def over_odd_values(service: Service) -> Iterator[Measured]:
    yield from _over(service, odd_requests(service))


def _over(service: Service, requests: Iterable[tuple[str, bytes]]) -> Iterator[Measured]:
    process = Process(service.pid, Turns(service.turns_path))
    for name, raw in requests:
        process.begin()
        answer = service.send(raw)
        measured = process.measured(f"{service.name}: {name}", raw[:200])
        yield measured._replace(fault="the answer is 500" if answer.startswith(FAILED) else "")
    _, found, traceback = service.log_text().partition("Traceback")
    if found:
        yield Measured(f"{service.name}: all requests", 0.0, 0, (), traceback[:2_000])


def complaint(measured: Measured) -> str | None:
    if measured.fault:
        return f"fault: {measured.name}: {measured.fault}"
    if measured.turn_s > TURN_S_MAX:
        return f"slow: {measured.name}: a turn of {measured.turn_s * 1_000:.0f} ms"
    if measured.grown_bytes > GROWTH_BYTES_MAX:
        return f"memory: {measured.name}: {measured.grown_bytes >> 20} MB more"
    return None


class Report:
    def __init__(self) -> None:
        self.measured = 0
        self.complaints = 0
        self._slowest: list[tuple[float, str]] = []
        self._largest: list[tuple[int, str]] = []

    def add(self, found: Measured) -> None:
        self.measured += 1
        heapq.heappush(self._slowest, (found.turn_s, found.name))
        heapq.heappush(self._largest, (found.grown_bytes, found.name))
        if len(self._slowest) > SHOWN:
            heapq.heappop(self._slowest)
            heapq.heappop(self._largest)
        told = complaint(found)
        if told is not None:
            self.complaints += 1
            print(told, *(frame[:200].hex() for frame in found.frames[:1]), flush=True)

    def show(self) -> None:
        for seconds, name in sorted(self._slowest, reverse=True):
            print(f"{seconds * 1_000:7.1f} ms  {name}")
        for size_bytes, name in sorted(self._largest, reverse=True):
            print(f"{size_bytes / (1 << 20):7.1f} MB  {name}")


def sweep_broker(directory: Path, options: argparse.Namespace, report: Report) -> int:
    """Returns the number of requests."""
    apis = [api for api in APIS.for_clients() if api.key not in NOT_ASKED
            and options.api.upper() in api.key.name]  # fmt: skip
    world = World(directory, options.bug, is_measured=True)
    world.start()
    try:
        prepare(world)
        hide(world)
        sweep = Sweep(world, options.seed)
        parts = {
            "edges": lambda: sweep.edges(apis),
            "sequences": lambda: sweep.sequences(apis),
            "largest": lambda: sweep.largest(apis, options.versions),
        }
        for name in options.parts:
            for found in parts[name]() if name in parts else ():
                report.add(found)
        sweep.close()
        return sweep.requests
    finally:
        world.kill()


def main() -> int:
    options = _options()
    directory = Path(tempfile.mkdtemp(prefix="sweep-"))
    report, began_s, requests = Report(), time.monotonic(), 0
    try:
        if set(options.parts) - {"http"}:
            requests += sweep_broker(directory / "broker", options, report)
        if "http" in options.parts:
            for opened in services(directory / "http"):
                with opened as service:
                    for found in over_http(service):
                        requests += 1
                        report.add(found)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    report.show()
    told = {"seed": options.seed, "requests": requests, "measured": report.measured}
    print(counts.line(PART, **told, complaints=report.complaints, seconds=time.monotonic() - began_s))
    return 1 if report.complaints else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--api", default="", help="only APIs with this in their name")
    parser.add_argument("--versions", choices=("last", "all"), default="last", help="of the largest requests")
    parser.add_argument("--bug", help="the name of one that is planted")
    parser.add_argument(
        "--parts", nargs="+", default=["edges", "sequences", "largest", "http"],
        choices=("edges", "sequences", "largest", "http"),
    )  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
