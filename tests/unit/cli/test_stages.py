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
    waited_s, pause_s, pauses_s = 0.0, 5.0, []
    while waited_s < 600:
        waited_s += pause_s
        pause_s = progress._next_pause_s(waited_s, pause_s)
        pauses_s.append(pause_s)
    assert pauses_s[:11] == [5] * 11
    assert pauses_s[11:16] == [10, 20, 40, 60, 60]
    assert set(pauses_s[16:]) == {60}
