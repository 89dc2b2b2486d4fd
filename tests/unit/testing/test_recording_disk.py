"""A disk that takes no more while a recording is written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from barnabas.testing.traffic.recording import Event, RecordingWriter, read_recording


def event(number: int) -> Event:
    return Event(1, 0, False, bytes([number]) * 200, number)


def test_what_was_written_before_the_disk_was_full_is_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, told = RecordingWriter(tmp_path / "traffic.jsonl"), []
    writer.on_failure = lambda: told.append(writer.failure)
    writer.add(event(1))
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[: len(data) - 50])

    monkeypatch.setattr(os, "write", half)
    writer.add(event(2))
    monkeypatch.undo()
    writer.add(event(3))
    writer.close()
    assert writer.failure is not None
    assert (writer.failure.errno, told) == (errno.ENOSPC, [writer.failure])
    assert list(read_recording(tmp_path / "traffic.jsonl")) == [event(1)]
    assert writer.events == 1


def test_a_full_disk_is_told_at_once() -> None:
    with pytest.raises(OSError, match="No space left on device"):
        RecordingWriter(Path("/dev/full"))
