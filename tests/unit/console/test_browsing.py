"""Pages of records have a size in memory, whatever part of a record is large."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.console.records import browsing
from barnabas.console.records.browsing import KEPT_BYTES_MAX, Bounds, Browser, RecordPage
from barnabas.console.records.fetching import Fetched
from barnabas.core.ids import TopicPartition
from barnabas.records.record import Record
from tests.support.manual_time import ManualClock

HEADER = b"x" * (1 << 20)
RECORDS = 100
PER_FETCH = 10


async def fetched(_: object, __: object, offset: int, *___: object, **____: object) -> Fetched:
    """Records of a large header, all with the same bytes: the test takes little memory."""
    end = min(offset + PER_FETCH, RECORDS)
    records = [Record(each, each, b"", b"", (("h", HEADER),)) for each in range(offset, end)]
    return Fetched(records, end, 1_000)


@pytest.mark.parametrize("is_older", [True, False], ids=["older", "newer"])
async def test_large_headers_make_a_page_shorter(is_older: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "fetch_in_log", fetched)
    cluster: Any = None
    bounds = {0: Bounds(0, RECORDS)}
    found: list[int] = []
    cursors = {0: RECORDS if is_older else 0}
    while len(found) < RECORDS:
        browser = Browser(cluster, ManualClock(), "t", bounds, mask=None)
        page: RecordPage = await (browser.older if is_older else browser.newer)(cursors, RECORDS)
        assert 0 < len(page.records) <= KEPT_BYTES_MAX // len(HEADER) + 1
        found += [each.record.offset for each in page.records]
        cursors = page.cursors
    in_order = list(range(RECORDS))
    assert found == (in_order[::-1] if is_older else in_order)


async def of_many_partitions(
    _: object, at: TopicPartition, offset: int, *__: object, **___: object
) -> Fetched:
    """Two records of each partition, at times that its number and the offset give."""
    records = [Record(each, 1_000 * each + at.partition, b"", b"") for each in range(offset, 2)]
    return Fetched(records, 2, 100)


@pytest.mark.parametrize("is_older", [True, False], ids=["older", "newer"])
async def test_a_record_of_many_partitions_costs_no_look_at_each(
    is_older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browsing, "fetch_in_log", of_many_partitions)
    looks = 0
    is_dry = Browser._is_dry

    def counted(*arguments: Any, **more: Any) -> bool:
        nonlocal looks
        looks += 1
        return is_dry(*arguments, **more)

    monkeypatch.setattr(Browser, "_is_dry", counted)
    cluster: Any = None
    partitions = range(300)
    browser = Browser(cluster, ManualClock(), "t", {each: Bounds(0, 2) for each in partitions}, mask=None)
    cursors = dict.fromkeys(partitions, 2 if is_older else 0)
    page = await (browser.older if is_older else browser.newer)(cursors, 400)
    times = sorted((1_000 * offset + each for each in partitions for offset in (0, 1)), reverse=is_older)
    assert [each.record.timestamp for each in page.records] == times[:400]
    assert looks < 20 * len(partitions)
