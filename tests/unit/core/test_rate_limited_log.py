"""A peer cannot fill the log."""

import logging

import pytest
from tests.support.manual_time import ManualClock

from barnabas.core.reporting.rate_limited_log import RateLimitedLogger


def test_a_kind_of_complaint_has_so_many_lines_a_second_and_says_what_was_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    limited_log = RateLimitedLogger(logging.getLogger("peers"), clock, lines_per_second=2)
    for number in range(5):
        limited_log.warn("size", "bad size %d", number)
    limited_log.warn("other", "another kind")
    assert [record.message for record in caplog.records] == ["bad size 0", "bad size 1", "another kind"]
    clock.advance(ms=1_000)
    limited_log.warn("size", "bad size %d", 5)
    limited_log.warn("size", "bad size %d", 6)
    assert [record.message for record in caplog.records[3:]] == [
        "bad size 5 (3 like it left out)",
        "bad size 6",
    ]


def test_a_fault_of_our_own_carries_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limited_log = RateLimitedLogger(logging.getLogger("peers"), ManualClock())
    limited_log.error("dispatch", "failed", cause=ValueError("why"))
    traced = caplog.records[0].exc_info
    assert traced is not None
    assert traced[1] is not None
    assert traced[1].args == ("why",)
