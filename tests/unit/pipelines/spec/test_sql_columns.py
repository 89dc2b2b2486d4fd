"""The SQL parser cannot fill the log with any text of a client."""

from __future__ import annotations

import logging

import pytest
from tests.support.manual_time import ManualClock

from barnabas.core.limits import LOG_LINES_PER_SECOND_MAX, NAME_CHARS_REMEMBERED_MAX
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.pipelines.spec.sql import columns as sql_columns
from barnabas.pipelines.spec.sql.columns import Columns, ParserLog

MISUNDERSTOOD = "SHOW FUNC x"


def test_lines_of_the_parser_have_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    """Through the filter that the module installed, at a rate of wall time: a burst has its limit."""
    with caplog.at_level(logging.WARNING):
        for _ in range(20 * LOG_LINES_PER_SECOND_MAX):
            sql_columns.parsed(MISUNDERSTOOD)
    assert {record.name for record in caplog.records} == {sql_columns.__name__}
    assert len(caplog.records) < 20 * LOG_LINES_PER_SECOND_MAX


def test_a_line_is_cut_and_the_rest_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    limited = ParserLog(RateLimitedLogger(logging.getLogger("test.parser"), clock))
    record = logging.LogRecord("sqlglot", logging.WARNING, "", 0, "q" * 100_000, (), None)
    with caplog.at_level(logging.WARNING):
        assert not any(limited.filter(record) for _ in range(LOG_LINES_PER_SECOND_MAX + 5))
        assert len(caplog.records) == LOG_LINES_PER_SECOND_MAX
        clock.advance(ms=1_000)
        limited.filter(record)
    assert "5 like it left out" in caplog.records[-1].getMessage()
    assert all(len(each.getMessage()) < 2 * NAME_CHARS_REMEMBERED_MAX for each in caplog.records)


def test_the_tree_is_searched_once_for_any_number_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for each column made 16 KB of SQL take a minute."""
    searches = []
    tables = sql_columns._tables
    monkeypatch.setattr(sql_columns, "_tables", lambda tree: searches.append(tree) or tables(tree))  # type: ignore[func-returns-value]
    found = sql_columns.missing_in_query("SELECT " + "a, " * 500 + "b FROM input", Columns({"a": None}))
    assert [each.name for each in found] == ["b"]
    assert len(searches) == 1
