"""Log lines of a broker on standard error."""

from __future__ import annotations

import logging

import pytest

from barnabas.config.dynamic.loggers import AUDIT
from barnabas.node.log_output import configure_logging


@pytest.mark.parametrize("name", ["barnabas.storage.log", AUDIT])
def test_lines_of_the_broker_and_of_the_audit_are_written(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging("info")
    logging.getLogger(name).info("something happened")
    logging.getLogger(name).debug("in detail")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"INFO  {name.removeprefix('barnabas.')}  something happened")


@pytest.mark.parametrize(
    "ending",
    ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\x1b[2K\x1b[1G", "\x00"],
)
def test_what_a_client_chose_ends_no_line(ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    forged = f'2026-01-31T12:00:00.123Z INFO  {AUDIT}  {{"decision": "denied"}}'
    logging.getLogger("barnabas.coordinator").info("group %s is new", f"readers{ending}{forged}")
    written = capsys.readouterr().err
    (line,) = written.splitlines()
    assert line.isprintable()
    assert line.endswith(f"group readers{ending.encode('unicode_escape').decode()}{forged} is new")


def test_a_traceback_has_lines_but_none_that_looks_like_one_of_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("info")
    raised = ValueError("no number: one\n2026-01-31T12:00:00.123Z INFO  forged\x1b\u2028line")
    logging.getLogger("barnabas.requests").error("it failed", exc_info=raised)
    first, *others = capsys.readouterr().err.splitlines()
    assert first.endswith("ERROR requests  it failed")
    assert others
    assert all(line.startswith("    ") and line.isprintable() for line in others)
    assert others[-1] == "    2026-01-31T12:00:00.123Z INFO  forged\\x1b\\u2028line"
