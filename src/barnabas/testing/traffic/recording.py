"""File of recorded traffic: one JSON object a line, in the order in which things happened.

    {"barnabas": "recording", "format": 1}
    {"connection": 1, "broker": 0, "request": "ABIAAw…", "at_ms": 3}
    {"connection": 1, "broker": 0, "answer": "AAAAAQ…", "at_ms": 4}

A frame is base64, without its size. `broker` numbers the brokers in the order in which the client met them.
The frames are those of the client and the broker, except for secrets. Frames of SASL, of delegation tokens,
of SCRAM credentials and of configs that are passwords have no content.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

FORMAT: Final = 1
_HEAD: Final = {"barnabas": "recording", "format": FORMAT}
LINE_BYTES_MAX: Final = 256 * 1024 * 1024


class BadRecording(ValueError):
    """The file is not a recording; the message says where."""


class Event(NamedTuple):
    """A request or an answer, in its turn."""

    connection: int
    broker: int
    is_answer: bool
    frame: bytes
    at_ms: int


class RecordingWriter:
    """Writes events as they happen. Only the owner may read the file: records can be confidential.

    A disk that takes no more ends the recording: `failure` says why. Its events so far stay a recording.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._size_bytes = 0
        """Bytes of whole lines."""
        self.events = 0
        self.failure: OSError | None = None
        """The error that ended the recording."""
        self.on_failure: Callable[[], object] = lambda: None
        try:
            if stat.S_ISREG(os.fstat(self._descriptor).st_mode):  # an older file may be open to others
                os.fchmod(self._descriptor, 0o600)
            self._write(_HEAD)
        except OSError:
            os.close(self._descriptor)
            raise

    def add(self, event: Event) -> None:
        if self.failure is not None:
            return
        try:
            self._add(event)
        except OSError as error:
            self.failure = error
            with suppress(OSError):  # a device cannot be cut
                os.ftruncate(self._descriptor, self._size_bytes)
            self.on_failure()

    def _add(self, event: Event) -> None:
        content = base64.b64encode(event.frame).decode("ascii")
        self._write({
            "connection": event.connection,
            "broker": event.broker,
            "answer" if event.is_answer else "request": content,
            "at_ms": event.at_ms,
        })  # fmt: skip
        self.events += 1

    def _write(self, line: dict[str, Any]) -> None:
        data = memoryview(json.dumps(line).encode("ascii") + b"\n")
        left = data
        while left:
            left = left[os.write(self._descriptor, left) :]
        self._size_bytes += len(data)

    def close(self) -> None:
        os.close(self._descriptor)


def read_recording(path: Path) -> Iterator[Event]:
    """Events of a file, in their order. Raises BadRecording."""
    with path.open(encoding="ascii", errors="replace") as file:
        if not path.stat().st_size:
            raise BadRecording(f"{path} is empty")
        for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX), ""), 1):
            try:
                found = json.loads(line)
                if number == 1:
                    if found != _HEAD:
                        raise ValueError
                    continue
                yield _event(found)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError, binascii.Error) as error:
                if number == 1:
                    raise BadRecording(f"{path} is not a recording of this format") from None
                raise BadRecording(f"{path}, line {number}: {error or type(error).__name__}") from None


def _event(found: Any) -> Event:
    is_answer = "answer" in found
    frame = base64.b64decode(found["answer" if is_answer else "request"], validate=True)
    numbers = [found["connection"], found["broker"], found["at_ms"]]
    if not all(isinstance(each, int) and each >= 0 for each in numbers):
        raise ValueError("connection, broker and at_ms are numbers from 0 on")
    connection, broker, at_ms = numbers
    return Event(connection, broker, is_answer, frame, at_ms)
