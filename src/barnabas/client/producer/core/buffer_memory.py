"""Memory of a producer's batches: `buffer.memory` bytes, and a fair queue of senders that wait for room.

A batch reserves its size when it is opened, and gives it back when it is done. A sender that finds no room
waits in line. Room that comes back goes to the first in line, and wakes as many senders as it has room for,
no more. A thousand waiting senders cost nothing while they wait. A newcomer never overtakes the line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from barnabas.core.errors import MessageTooLarge


class Waiter:
    """Place in the line. `granted` is true when the room belongs to it."""

    __slots__ = ("granted", "size_bytes", "wake")

    def __init__(self, size_bytes: int, wake: Callable[[], None]) -> None:
        self.size_bytes = size_bytes
        self.wake = wake
        self.granted = False


class BufferMemory:
    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.available_bytes = total_bytes
        self._line: deque[Waiter] = deque()

    @property
    def waiting(self) -> int:
        """Number of senders in line."""
        return len(self._line)

    def take(self, size_bytes: int) -> bool:
        """Reserve memory at once; False when a sender must wait."""
        self._check(size_bytes)
        if self._line or size_bytes > self.available_bytes:
            return False
        self.available_bytes -= size_bytes
        return True

    def wait(self, size_bytes: int, wake: Callable[[], None]) -> Waiter:
        """Join the line. `wake` is called when the room is reserved; `leave` ends the wait earlier."""
        self._check(size_bytes)
        waiter = Waiter(size_bytes, wake)
        self._line.append(waiter)
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Leave the line, or give back the room that was granted."""
        if waiter.granted:
            waiter.granted = False
            self.give_back(waiter.size_bytes)
        elif waiter in self._line:
            self._line.remove(waiter)
            self._grant()  # a large request at the head may have held up smaller ones

    def give_back(self, size_bytes: int) -> None:
        self.available_bytes += size_bytes
        assert self.available_bytes <= self.total_bytes
        self._grant()

    def _grant(self) -> None:
        line = self._line
        while line and line[0].size_bytes <= self.available_bytes:
            waiter = line.popleft()
            self.available_bytes -= waiter.size_bytes
            waiter.granted = True
            waiter.wake()

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self.total_bytes:
            raise MessageTooLarge(
                f"a record of {size_bytes} bytes does not fit into buffer.memory, {self.total_bytes} bytes"
            )
