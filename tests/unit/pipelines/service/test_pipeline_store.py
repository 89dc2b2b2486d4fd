"""Faults that a follower of the pipelines' topic survives."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, ClassVar, Self

import pytest

from barnabas.client import ClusterUnreachable, Record
from barnabas.pipelines.service import store
from barnabas.pipelines.service.store import HEARTBEAT_KEY, WRITER, Change, PipelineStore


def only_the_address(_: object) -> dict[str, str]:
    return {"bootstrap.servers": "127.0.0.1:9"}


class Scripted:
    """A consumer whose polls give `answers`, one each."""

    answers: ClassVar[list[Any]]
    reaches_the_cluster: ClassVar[bool] = True

    def __init__(self, *_: object, **__: object) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def assign(self, _: object) -> None: ...

    def seek(self, *_: object) -> None: ...

    async def position(self, _: object) -> int:
        return 0

    async def poll(self, **_: object) -> list[Record]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    async def end_offsets(self, _: object) -> dict[Any, int]:
        if not self.reaches_the_cluster:
            raise ClusterUnreachable(["nothing listens"])
        return {}


HEARTBEAT = Record("topic", 0, 7, 0, HEARTBEAT_KEY, b"{}", ((WRITER, b"w"),))


async def test_following_survives_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "Consumer", Scripted)
    Scripted.answers = [RuntimeError("a frame makes no sense"), [HEARTBEAT]]
    async with aclosing(PipelineStore(only_the_address, "s").follow()) as changes:
        assert (await anext(changes)).is_gap
        assert await anext(changes) == Change("w", is_heartbeat=True)


async def test_a_cluster_out_of_reach_is_a_gap_and_not_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a standby would claim the pipelines of a service that could not write its heartbeats."""
    monkeypatch.setattr(store, "Consumer", Scripted)
    monkeypatch.setattr(Scripted, "reaches_the_cluster", False)
    Scripted.answers = [[], [HEARTBEAT]]
    async with aclosing(PipelineStore(only_the_address, "s").follow()) as changes:
        assert (await anext(changes)).is_gap
        assert await anext(changes) == Change("w", is_heartbeat=True)
