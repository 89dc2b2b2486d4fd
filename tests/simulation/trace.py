"""Events of a run, line by line, and one digest of all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable


class Trace:
    """Every event goes into the hash; those that a person wants to read are kept as lines."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.lines: list[str] = []
        self.events = 0
        self._now_s = now_s
        self._hash = hashlib.blake2b(digest_size=8)

    def note(self, *what: object) -> None:
        """Too much to read: a message that arrived."""
        self.events += 1
        self._hash.update(f"{self._now_s():.9f} {what}\n".encode())

    def note_message(self, label: str, size_bytes: int, checksum: int) -> None:
        self.events += 1
        self._hash.update(f"{self._now_s():.9f} {label} {size_bytes} {checksum}\n".encode())

    def tell(self, line: str) -> None:
        self.note(line)
        self.lines.append(f"{self._now_s():10.3f}  {line}")

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
