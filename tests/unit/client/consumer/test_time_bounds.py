"""Times of bounded reads, and the bounds that a query states."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from barnabas.client.tables.sql import lower_bound
from barnabas.client.tables.time_bounds import Time, time_ms

duckdb = pytest.importorskip("duckdb")
NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("10m", NOW_MS - 600_000),
        ("2h 30m", NOW_MS - 9_000_000),
        ("1.5s", NOW_MS - 1_500),
        (timedelta(days=1), NOW_MS - 86_400_000),
        (5, 5),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T01:00:01+01:00", 1_000),
        (datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), 2_000),
    ],
)
def test_times(time: Time, expected: int) -> None:
    assert time_ms(time, NOW_MS) == expected


def test_text_that_is_no_time() -> None:
    with pytest.raises(ValueError, match="not a time"):
        time_ms("yesterday", NOW_MS)


AT = "TIMESTAMPTZ '2026-01-02 00:00:00+00'"


@pytest.mark.parametrize(
    ("query", "pushed"),
    [
        (f"SELECT * FROM t WHERE timestamp >= {AT}", True),
        (f"SELECT * FROM t WHERE key = 'a' AND {AT} < timestamp AND timestamp < now()", True),
        (f"SELECT * FROM t WHERE timestamp BETWEEN {AT} AND now()", True),
        (f"WITH x AS (SELECT * FROM t WHERE timestamp > {AT}) SELECT count(*) FROM x", True),
        (f"SELECT * FROM t WHERE timestamp >= {AT} OR key = 'a'", False),
        (f"SELECT * FROM t WHERE NOT timestamp >= {AT}", False),
        (f"SELECT * FROM t WHERE timestamp <= {AT}", False),
        (f"SELECT * FROM t JOIN u USING (key) WHERE timestamp >= {AT}", False),
        (f"SELECT * FROM t WHERE timestamp >= {AT} UNION ALL SELECT * FROM t", False),
        ('SELECT * FROM t WHERE timestamp >= "offset"', False),
        ("SELECT * FROM t", False),
    ],
)
def test_only_safe_bounds_are_pushed_down(query: str, pushed: bool) -> None:
    expected = datetime(2026, 1, 2, tzinfo=UTC) if pushed else None
    assert lower_bound(query, "t", duckdb.connect()) == expected
