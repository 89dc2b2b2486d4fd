"""A start that waits for its store: the log names the store, and the wait has an end."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.support.waiting import PATIENCE_S

from barnabas.cluster.coordination import first_connection
from barnabas.cluster.coordination.first_connection import connected_within


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_connection, "ANNOUNCE_S", 0.001)


class Third(logging.Handler):
    """Sets the event with the third line."""

    def __init__(self, event: asyncio.Event) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._event = event

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if len(self.lines) == 3:
            self._event.set()


async def test_a_wait_is_announced_until_the_store_answers(caplog: pytest.LogCaptureFixture) -> None:
    connected = asyncio.Event()
    third = Third(connected)
    first_connection.logger.addHandler(third)
    try:
        with caplog.at_level(logging.INFO, first_connection.__name__):
            await connected_within(connected, 1_000 * PATIENCE_S, "ZooKeeper at zk:2181")
    finally:
        first_connection.logger.removeHandler(third)
    assert third.lines == ["waiting for ZooKeeper at zk:2181"] * 3


async def test_the_wait_ends_without_an_answer() -> None:
    with pytest.raises(TimeoutError):
        await connected_within(asyncio.Event(), 20, "ZooKeeper at zk:2181")


async def test_a_store_that_answers_at_once_is_not_announced(caplog: pytest.LogCaptureFixture) -> None:
    connected = asyncio.Event()
    connected.set()
    with caplog.at_level(logging.INFO, first_connection.__name__):
        await connected_within(connected, 20, "ZooKeeper at zk:2181")
    assert not caplog.messages
