"""Faults that a follower of the pipelines' topic survives."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, Self, cast

import pytest

from barnabas.pipelines.service import store
from barnabas.pipelines.service.store import Change, PipelineStore


class Nothing:
    """A cluster of which nothing is asked, and its consumer."""

    def __init__(self, *_: object) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def pause(self, pause_ms: float) -> float:
        return pause_ms


async def test_following_survives_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [RuntimeError("a frame makes no sense"), [Change("w", is_heartbeat=True)]]

    async def poll(_: object) -> list[Change]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    monkeypatch.setattr(store, "Consumer", Nothing)
    monkeypatch.setattr(store, "_poll", poll)
    async with aclosing(PipelineStore(cast("Any", Nothing()), "s").follow()) as changes:
        assert (await anext(changes)).is_gap
        assert (await anext(changes)).is_heartbeat
