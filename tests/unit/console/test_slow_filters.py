"""Searches whose filter takes long: they end in time, and each page comes further."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.console.records import browsing
from barnabas.console.records.browsing import SCAN_MS_MAX, Bounds, Browser
from barnabas.console.records.expression import Candidate, Predicate
from barnabas.console.records.fetching import Fetched
from barnabas.records.record import Record
from tests.support.manual_time import ManualClock

RECORDS, A_FETCH = 40, 8
SECOND_MS = 1_000.0


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> tuple[Browser, list[int]]:
    """A browser whose filter takes a second for each record and keeps every third; and what it looked at."""
    clock, seen = ManualClock(), list[int]()

    async def fetch(cluster: Any, at: Any, offset: int, *_: Any, **__: Any) -> Fetched:
        records = [Record(each, each, None, b"v") for each in range(offset, min(offset + A_FETCH, RECORDS))]
        return Fetched(records, offset + len(records), 100)

    def check(record: Candidate) -> bool:
        clock.advance(SECOND_MS)
        seen.append(record.offset)
        return record.offset % 3 == 0

    monkeypatch.setattr(browsing, "fetch_in_log", fetch)
    bounds = {0: Bounds(0, RECORDS)}
    cluster = cast("ClusterClient", None)
    return Browser(cluster, clock, "orders", bounds, Predicate(check, 1), mask=None), seen


@pytest.mark.parametrize("is_older", [False, True], ids=["newer", "older"])
def test_a_search_ends_in_time_and_goes_on(slow: tuple[Browser, list[int]], is_older: bool) -> None:
    browser, seen = slow

    async def look() -> list[int]:
        cursors, found = {0: RECORDS if is_older else 0}, []
        for _ in range(RECORDS):
            before = len(seen)
            page = await (browser.older if is_older else browser.newer)(cursors, 5)
            assert len(seen) - before <= SCAN_MS_MAX / SECOND_MS + 1
            found += [each.record.offset for each in page.records]
            assert page.cursors != cursors or page.is_complete
            cursors = page.cursors
            if page.is_complete:
                break
        assert page.is_complete
        return found

    expected = [offset for offset in range(RECORDS) if offset % 3 == 0]
    assert asyncio.run(look()) == (expected[::-1] if is_older else expected)
