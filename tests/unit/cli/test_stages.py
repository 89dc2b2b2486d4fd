from __future__ import annotations

import io
import threading

import pytest

from barnabas.cli.support import progress
from barnabas.cli.support.progress import Stages


class Lines(io.StringIO):
    """Says when enough was written."""

    def __init__(self, wanted: int) -> None:
        super().__init__()
        self.wanted = wanted
        self.enough = threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        if self.getvalue().count("\n") >= self.wanted:
            self.enough.set()
        return count


def test_a_stage_is_printed_again_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AGAIN_S", 0.001)
    out = Lines(3)
    waiting = Stages("copy", out=out)
    waiting.enter("starting Spark")
    assert out.enough.wait(60)
    waiting.leave()
    first, second, *_ = out.getvalue().splitlines()
    assert first == "copy: starting Spark …"
    assert second.startswith("copy: starting Spark … ")
    assert second.endswith(" s")


def test_quiet_prints_no_stage() -> None:
    out = Lines(1)
    waiting = Stages("copy", quiet=True, out=out)
    waiting.enter("starting Spark")
    waiting.leave()
    assert out.getvalue() == ""


def test_a_long_wait_is_printed_each_minute() -> None:
    waited_s, pause_s, pauses_s = 0.0, progress.AGAIN_S, []
    while waited_s < 600:
        waited_s += pause_s
        pause_s = progress._next_pause_s(waited_s, pause_s)
        pauses_s.append(pause_s)
    assert pauses_s[:14] == [4] * 14
    assert pauses_s[14:19] == [8, 16, 32, 60, 60]
    assert set(pauses_s[19:]) == {60}


def test_a_silence_with_the_start_of_its_command_is_less_than_five_seconds() -> None:
    start_s = 1.0  # of the interpreter and the imports, while other processes take most of the machine
    assert start_s + progress.NOTICE_AFTER_S < 5
    assert start_s + progress.AGAIN_S <= 5
