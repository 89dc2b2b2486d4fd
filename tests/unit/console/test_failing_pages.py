"""Pages and answers that fail are a status for the visitor, and few lines of the log."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from barnabas.client import ClientClosed
from barnabas.console.web.application import SHOWN_CHARACTERS_MAX, application
from barnabas.console.web.console import ConsoleSettings
from barnabas.console.web.context import Context
from barnabas.console.web.section import Question, Section
from barnabas.console.web.sessions import Sessions
from barnabas.core.limits import LOG_LINES_PER_SECOND_MAX
from barnabas.core.reporting import error_isolation
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from tests.support.manual_time import ManualClock

VISITS = 100


async def fail(_: Context) -> Any:
    raise ZeroDivisionError("a fault of this page")


async def is_open() -> None:
    """The console has its connection."""


def console_of(clock: ManualClock) -> Any:
    return SimpleNamespace(
        clock=clock,
        connections=SimpleNamespace(takes_bearers=False, takes_certificates=False, needs_login=False),
        sessions=Sessions(clock),
        settings=ConsoleSettings(),
        shared=object(),
        until_open=is_open,
    )


async def test_a_sign_out_during_a_question_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    """It closes the client that the question is asked with."""

    async def ask(_: Context) -> Any:
        raise ClientClosed("this client is closed")

    section = Section("Topics", "/t", routes=(), questions=(Question("/api/t", "Asks.", ask, int),))
    transport = httpx.ASGITransport(application(console_of(ManualClock()), [section]))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as visitor:
        response = await visitor.get("/api/t")
    assert (response.status_code, response.json()["error"]) == (503, "ClientClosed")
    assert not caplog.records


async def test_a_visitor_who_finds_a_fault_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    limited_log = RateLimitedLogger(logging.getLogger("barnabas"), clock)
    monkeypatch.setattr(error_isolation, "_limited_log", limited_log)
    questions = (Question("/api/broken/{name}", "Fails.", fail, int),)
    section = Section("Broken", "/broken", routes=(), questions=questions)
    transport = httpx.ASGITransport(application(console_of(clock), [section]))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as visitor:
        for number in range(VISITS):
            response = await visitor.get(f"/api/broken/{number}{'x' * 1_000}")
            assert response.status_code == 500
            assert "ZeroDivisionError" not in response.text
    assert 0 < len(caplog.records) <= LOG_LINES_PER_SECOND_MAX
    assert all(record.levelno == logging.ERROR for record in caplog.records)
    assert max(len(record.getMessage()) for record in caplog.records) < SHOWN_CHARACTERS_MAX + 100
