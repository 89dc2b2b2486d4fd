"""Errors that wait for the application's next call.

A fault lasts until the application or an operator mends it, and each retry meets it again. So errors of the
same kind and text count once: an application that is busy for an hour finds one of them.
"""

from __future__ import annotations

from collections.abc import Iterator


class PendingErrors:
    def __init__(self) -> None:
        self._errors: dict[tuple[type[Exception], str], Exception] = {}

    def __len__(self) -> int:
        return len(self._errors)

    def __iter__(self) -> Iterator[Exception]:
        return iter(self._errors.values())

    def add(self, error: Exception) -> None:
        self._errors.setdefault((type(error), str(error)), error)

    def take(self) -> Exception:
        """The oldest error, which is removed."""
        return self._errors.pop(next(iter(self._errors)))
