"""Error isolation logs the errors that it catches, and catches nothing that ends a program."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.support.manual_time import ManualClock

from barnabas.core.errors import NotLeaderOrFollower
from barnabas.core.reporting import error_isolation as module
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger


def test_an_element_that_fails_is_told_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with sweeping("the retention of", "topic-0"):
        raise ValueError("why")
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "the retention of topic-0 failed; the others continue"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


def test_a_refusal_that_has_a_name_is_told_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with sweeping("the flush of", "topic-0"):
        raise NotLeaderOrFollower("it has moved")
    (record,) = caplog.records
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)
    assert record.getMessage() == "the flush of topic-0: it has moved"


def test_what_fails_in_every_pass_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited_log = RateLimitedLogger(module.logger, ManualClock(), lines_per_second=3)
    monkeypatch.setattr(module, "_limited_log", limited_log)
    for number in range(1_000):
        with sweeping("the retention of", number):
            raise ValueError("why")
    assert len(caplog.records) == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_ends_a_program_or_a_task_is_let_through(error: type[BaseException]) -> None:
    with pytest.raises(error), sweeping("the retention of"):
        raise error
