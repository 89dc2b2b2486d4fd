"""What a service hears of its driver processes, when they say something odd."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from barnabas.core.clock import ManualClock
from barnabas.core.scheduler import ManualScheduler
from barnabas.pipelines.service import drivers
from barnabas.pipelines.service.drivers import LINE_BYTES_MAX, DriverProcesses
from barnabas.pipelines.service.store import Target
from barnabas.pipelines.service.supervisor import State, Supervisor
from barnabas.pipelines.spec.validation import load_document

SPEC = load_document({"name": "p", "source": {"type": "rate"}, "sink": {"type": "console"}})


async def last_words(*chunks: bytes) -> str:
    stderr = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    for chunk in chunks:
        stderr.feed_data(chunk)
    stderr.feed_eof()
    process = drivers._Process({})
    return await process._errors(cast("Any", SimpleNamespace(stderr=stderr)))


async def test_a_line_of_any_length_is_read_and_those_that_follow_it() -> None:
    assert await last_words(b"x" * (2 * LINE_BYTES_MAX), b"\n", b"out of mem", b"ory\n\n") == "out of memory"
    assert await last_words(b"killed") == "killed"
    assert len(await last_words(b"x" * 100_000)) < 20_000


async def test_a_driver_whose_news_makes_no_sense_has_failed(monkeypatch: Any) -> None:
    async def serve(_: object) -> str:
        raise ValueError("a line is too long")

    monkeypatch.setattr(drivers._Process, "serve", serve)
    clock = ManualClock()
    processes = DriverProcesses("broker:1", "state", None)
    supervisor = Supervisor(processes, ManualScheduler(clock), clock)
    supervisor.put(SPEC, Target.RUNNING, 0)
    await processes._tasks.finished()
    pipeline = supervisor.pipelines["p"]
    assert pipeline.state is State.RESTARTING
    assert pipeline.last_error == "the news of the driver could not be followed: a line is too long"


async def served(monkeypatch: Any, serve: Any) -> Supervisor:
    monkeypatch.setattr(drivers._Process, "serve", serve)
    clock = ManualClock()
    processes = DriverProcesses("broker:1", "state", None)
    supervisor = Supervisor(processes, ManualScheduler(clock), clock)
    supervisor.put(SPEC, Target.RUNNING, 0)
    await processes._tasks.finished()
    return supervisor


async def test_a_machine_without_spark_is_not_asked_again(monkeypatch: Any) -> None:
    async def serve(process: Any) -> str:
        process.heard({"event": "unable", "error": "running pipelines needs Spark"})
        return str(process.unable)

    pipeline = (await served(monkeypatch, serve)).pipelines["p"]
    assert (pipeline.state, pipeline.last_error) == (State.FAILED, "running pipelines needs Spark")


async def test_a_failure_that_is_final_is_handed_on_as_such(monkeypatch: Any) -> None:
    async def serve(process: Any) -> str:
        told = {"event": "ended", "name": "p", "attempt": 1, "error": "no such column", "is_final": True}
        process.heard(told)
        return "the driver process ended with code 0"

    pipeline = (await served(monkeypatch, serve)).pipelines["p"]
    assert (pipeline.state, pipeline.last_error) == (State.FAILED, "no such column")


def test_the_driver_that_is_started_is_there() -> None:
    from barnabas.pipelines.spark import driver

    assert driver.__name__ == drivers.DRIVER
    assert callable(driver.main)
