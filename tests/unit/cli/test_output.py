"""Tables for people, columns for pipes."""

from __future__ import annotations

import sys

import pytest

from barnabas.cli.support.output import print_table

ROWS = [("retention.ms", "1"), ("[bold]", "a|b")]


def test_a_pipe_gets_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("key", "value"), ROWS)
    assert capsys.readouterr().out == "key           value\nretention.ms  1\n[bold]        a|b\n"


def test_a_terminal_gets_a_table_with_every_cell_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    print_table(("key", "value"), ROWS)
    shown = capsys.readouterr().out
    assert "retention.ms" in shown
    assert "[bold]" in shown
    assert "─" in shown
