from __future__ import annotations

import io
import threading

import pytest

from barnabas.cli import stages
from barnabas.cli.stages import Stages


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


def test_what_is_waited_for_is_said_again_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "AGAIN_S", 0.001)
    out = Lines(3)
    waiting = Stages("copy", out=out)
    waiting.enter("starting Spark")
    assert out.enough.wait(60)
    waiting.leave()
    first, second, *_ = out.getvalue().splitlines()
    assert first == "copy: starting Spark …"
    assert second.startswith("copy: starting Spark … ")
    assert second.endswith(" s")


def test_whoever_wants_no_lines_gets_none() -> None:
    out = Lines(1)
    waiting = Stages("copy", quiet=True, out=out)
    waiting.enter("starting Spark")
    waiting.leave()
    assert out.getvalue() == ""
