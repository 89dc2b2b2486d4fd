"""Order and pages of rows, the history of lags, sessions, the description of the API."""

from __future__ import annotations

import json

import pytest

from barnabas.console.pages import SECTIONS
from barnabas.console.records.query import InvalidQuery, MessageQuery
from barnabas.console.view.history import SAMPLES, LagHistory
from barnabas.console.view.paging import groups_in_order, matches, page_of, topics_in_order
from barnabas.console.view.rows import GroupRow, TopicRow
from barnabas.console.web.api import as_json, openapi
from barnabas.console.web.sessions import IDLE_MS, SESSIONS_MAX, Sessions
from tests.support.manual_time import ManualClock


def topic(name: str, records: int | None = 0) -> TopicRow:
    return TopicRow(name, "id", False, 1, 1, 0, 0, records, None)


def group(name: str, lag: int | None) -> GroupRow:
    return GroupRow(name, "Stable", "consumer", 1, 1, lag, None)


@pytest.mark.parametrize("descending", [False, True])
def test_rows_without_a_value_come_last(descending: bool) -> None:
    rows = [topic("b", 2), topic("c", None), topic("a", 1), topic("d", None)]
    ordered = [row.name for row in topics_in_order(rows, "records", descending=descending)]
    assert ordered == (["b", "a", "c", "d"] if descending else ["a", "b", "c", "d"])
    lags = groups_in_order([group("x", None), group("y", 5), group("z", 9)], "lag", descending=descending)
    assert [row.group_id for row in lags] == (["z", "y", "x"] if descending else ["y", "z", "x"])


def test_pages_and_search() -> None:
    page = page_of(list(range(10)), 4, 3)
    assert (page.rows, page.total) == ((4, 5, 6), 10)
    assert page_of([1], 5, 3).rows == ()
    assert page_of([1], -5, -3).rows == (1,)
    assert matches("Orders-Eu", "eu ord")
    assert not matches("orders", "x")


def test_the_history_of_a_lag() -> None:
    history = LagHistory()
    history.add(0, [group("a", 0)])
    for at in range(1, SAMPLES + 10):
        history.add(at * 1_000, [group("a", at * 5), group("b", 100 - at if at > 3 else None)])
    assert len(history.of("a")) == SAMPLES
    assert history.trend("a") == pytest.approx(5.0)
    assert history.trend("b") == pytest.approx(-1.0)
    assert history.trend("absent") is None
    history.add(1_000_000, [])
    assert history.of("a") == []


async def test_strangers_sign_nobody_out() -> None:
    sessions = Sessions(ManualClock())
    known = sessions.begin()
    known.is_admitted = True
    for _ in range(2 * SESSIONS_MAX):
        sessions.begin()
    assert sessions.find(known.id) is known
    await sessions.close()


async def test_sessions_expire_and_are_bounded() -> None:
    clock = ManualClock()
    sessions = Sessions(clock)
    first = sessions.begin()
    assert sessions.find(first.id) is first
    assert sessions.find("guessed") is None
    assert first.form_token != sessions.begin().form_token
    for _ in range(SESSIONS_MAX):
        last = sessions.begin()
    assert sessions.find(first.id) is None
    clock.advance(ms=IDLE_MS + 1)
    assert sessions.find(last.id) is None
    await sessions.close()


def test_openapi_describes_every_question() -> None:
    found = openapi(SECTIONS)
    json.dumps(found)
    questions = {each.path.replace(":int", "") for section in SECTIONS for each in section.questions}
    assert set(found["paths"]) == questions
    text = json.dumps(found["paths"])
    for name in found["components"]["schemas"]:
        assert found["components"]["schemas"][name]["properties"], name
    assert "#/components/schemas/PageTopicRow" in text
    identifiers = [each["get"]["operationId"] for each in found["paths"].values()]
    assert len(set(identifiers)) == len(identifiers)
    assert as_json(topic("a"))["traffic"] == {"records_in": None, "bytes_in": None, "bytes_out": None}


@pytest.mark.parametrize(
    "given",
    [
        {"start": "middle"},
        {"start": "time"},
        {"start": "time", "time": "soon"},
        {"partition": "-1"},
        {"offset": "9" * 30},
        {"at": "1:2"},
        {"at": "x-y"},
        {"at": ".".join(["1-1"] * 20_000)},
        {"value": "xml"},
        {"limit": "many"},
    ],
)
def test_a_query_that_makes_no_sense_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidQuery):
        MessageQuery.parse(given)


def test_the_address_of_a_page_of_messages_says_what_it_shows() -> None:
    given = {"start": "time", "time": "2026-11-18T09:00", "contains": "a b", "at": "0-5.3-7", "limit": "10"}
    query = MessageQuery.parse(given)
    assert query.time_ms == 1_794_992_400_000
    assert query.cursors == {0: 5, 3: 7}
    assert query.parameters() == given
    assert MessageQuery.parse(query.parameters()) == query
    assert MessageQuery.parse({}).parameters() == {}
