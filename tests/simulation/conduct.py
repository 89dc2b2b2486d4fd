"""Promises of the client library that the logs at the end do not show.

- A call returns or raises within its timeout, whatever the brokers do.
- A closed client leaves no task and no connection.
- A group commits no offset before every record below it was handed out, or handled by `process`.
- `process` repeats no record whose acknowledged commit says that it is done, and never handles two records of
  one key at the same time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator

from tests.chaos.history import History
from tests.simulation.loop import Process, SimulatedLoop, current_process

SLACK_S = 1.5
"""A wait may end this much after its timeout: the last answer is on its way, and a pause is over."""
CLOSED_WITHIN_S = 0.5


class Conduct:
    def __init__(self, loop: SimulatedLoop, streams_of: Callable[[Process], int]) -> None:
        self.complaints: list[str] = []
        self._loop = loop
        self._streams_of = streams_of
        self._dealt: defaultdict[tuple[str, str, int], set[int]] = defaultdict(set)
        """Offsets that members of a group were given, by group, topic and partition."""
        self._committed: dict[tuple[str, str, int], int] = {}

    def complain(self, complaint: str) -> None:
        self.complaints.append(complaint)

    def waited(self, name: str, call: str, began_s: float, limit_s: float) -> None:
        """A call has returned or raised, which began at `began_s`."""
        waited_s = self._loop.time() - began_s
        if waited_s > limit_s + SLACK_S:
            self.complain(f"waited too long: {call} of {name} took {waited_s:.1f} s, not {limit_s:.1f} s")

    async def closed(self, name: str) -> None:
        """The process has closed its clients: nothing of them is left."""
        process = current_process()
        await asyncio.sleep(CLOSED_WITHIN_S)
        tasks = [task for task in process.tasks if task is not asyncio.current_task()]
        if tasks:
            self.complain(f"left behind: {len(tasks)} tasks of {name}, the first in {_place_of(tasks[0])}")
        streams = self._streams_of(process)
        if streams:
            self.complain(f"left behind: {streams} connections of {name}")

    # -- groups ---------------------------------------------------------------------------------

    def dealt(self, group: str, topic: str, partition: int, offset: int) -> None:
        """A member was given this record; with `process`, it has handled it."""
        self._dealt[group, topic, partition].add(offset)

    def committed(self, group: str, topic: str, partition: int, offset: int) -> None:
        """The coordinator has acknowledged this commit."""
        key = (group, topic, partition)
        self._committed[key] = max(offset, self._committed.get(key, 0))

    def committed_offset(self, group: str, topic: str, partition: int) -> int:
        return self._committed.get((group, topic, partition), 0)

    def passed_over(self, history: History) -> Iterator[str]:
        """Records that no member was given, below an offset that the group has committed."""
        for (group, topic, partition), offset in self._committed.items():
            dealt = self._dealt[group, topic, partition]
            for at, value in history.final[topic, partition]:
                if at < offset and at not in dealt:
                    yield (
                        f"passed over: {group} committed {topic}-{partition}@{offset}, and got no {value} at"
                        f" {at}"
                    )


class KeyTurns:
    """Handlers of one `process` call: two of a key never run together, and each key goes forward."""

    def __init__(self, name: str, conduct: Conduct) -> None:
        self._name = name
        self._conduct = conduct
        self._running: dict[tuple[int, bytes | None], int] = {}
        self._finished: dict[tuple[int, bytes | None], int] = {}

    def begin(self, partition: int, key: bytes | None, offset: int) -> None:
        if key is None:
            return
        before = self._running.get((partition, key))
        if before is not None:
            self._conduct.complain(
                f"two of a key: {self._name} handles {partition}@{offset} beside {before} of key {key!r}"
            )
        last = self._finished.get((partition, key), -1)
        if offset <= last:
            self._conduct.complain(f"key goes back: {self._name} handles {partition}@{offset} after {last}")
        self._running[partition, key] = offset

    def end(self, partition: int, key: bytes | None, offset: int, *, is_done: bool) -> None:
        if key is None:
            return
        self._running.pop((partition, key), None)
        if is_done:
            self._finished[partition, key] = offset

    def forget(self, partitions: Collection[int]) -> None:
        """They are given up: whoever gets them next may repeat what was not committed."""
        for key in [key for key in self._finished if key[0] in partitions]:
            del self._finished[key]


def _place_of(task: asyncio.Task[object]) -> str:
    stack = task.get_stack(limit=1)
    code = stack[0].f_code if stack else None
    return "nowhere" if code is None else f"{code.co_name} of {code.co_filename.rpartition('/')[2]}"
