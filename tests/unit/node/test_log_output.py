"""What a broker writes to standard error."""

from __future__ import annotations

import logging

import pytest

from barnabas.config.loggers import AUDIT
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
