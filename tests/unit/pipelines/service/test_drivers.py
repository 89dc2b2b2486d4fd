"""Unexpected events and ends of driver processes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from tests.support.manual_time import ManualClock, ManualScheduler

from barnabas.pipelines.service import drivers
from barnabas.pipelines.service.drivers import LINE_BYTES_MAX, DriverProcesses
from barnabas.pipelines.service.store import Target
from barnabas.pipelines.service.supervisor import State, Supervisor
from barnabas.pipelines.spec.model import Part
from barnabas.pipelines.spec.validation import load_document

SPEC = load_document({"name": "p", "source": {"type": "rate"}, "sink": {"type": "console"}})


async def last_words(*chunks: bytes) -> str:
    stderr = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    for chunk in chunks:
        stderr.feed_data(chunk)
    stderr.feed_eof()
    process = drivers._Process({}, is_reused=True)
    return await process._errors(cast("Any", SimpleNamespace(stderr=stderr)))


async def test_a_line_of_any_length_is_read_and_those_that_follow_it() -> None:
    assert await last_words(b"x" * (2 * LINE_BYTES_MAX), b"\n", b"out of mem", b"ory\n\n") == "out of memory"
    assert await last_words(b"killed") == "killed"
    assert len(await last_words(b"x" * 100_000)) < 20_000


async def test_a_driver_with_invalid_events_has_failed(monkeypatch: Any) -> None:
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
    assert pipeline.last_error == "the events of the driver could not be read: a line is too long"


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
        process.on_event({"event": "unable", "error": "running pipelines needs Spark"})
        return str(process.unable)

    pipeline = (await served(monkeypatch, serve)).pipelines["p"]
    assert (pipeline.state, pipeline.last_error) == (State.FAILED, "running pipelines needs Spark")


async def test_a_failure_that_is_final_is_handed_on_as_such(monkeypatch: Any) -> None:
    async def serve(process: Any) -> str:
        told = {"event": "ended", "name": "p", "attempt": 1, "error": "no such column", "is_final": True}
        process.on_event(told)
        return "the driver process ended with code 0"

    pipeline = (await served(monkeypatch, serve)).pipelines["p"]
    assert (pipeline.state, pipeline.last_error) == (State.FAILED, "no such column")


async def test_of_several_pipelines_in_a_driver_that_died_none_is_blamed(monkeypatch: Any) -> None:
    """Each has a driver of its own from then on, and the one that ends it again is blamed."""
    served: list[list[str]] = []

    async def serve(process: Any) -> str:
        await asyncio.sleep(0)
        served.append(sorted(process.pipelines))
        if served[-1] not in ([["a", "b"], ["a"]]):
            await asyncio.Event().wait()
        return "the driver process ended with code 52"

    monkeypatch.setattr(drivers._Process, "serve", serve)
    clock = ManualClock()
    timers = ManualScheduler(clock)
    processes = DriverProcesses("broker:1", "state", None)
    supervisor = Supervisor(processes, timers, clock)
    for name in ("a", "b"):
        supervisor.put(replace(SPEC, name=name), Target.RUNNING, 0)
    await turns()
    assert served == [["a", "b"]]
    assert [each.failures for each in supervisor.pipelines.values()] == [0, 0]
    assert "ran 2 pipelines" in str(supervisor.pipelines["b"].last_error)
    clock.advance(1_000)
    timers.run_due()
    await turns()
    assert served[1:] == [["a"], ["b"]]
    assert [each.failures for each in supervisor.pipelines.values()] == [1, 0]
    supervisor.put(replace(SPEC, name="b"), Target.STOPPED, 0)
    assert processes._apart_as(replace(SPEC, name="b")) is None


async def test_a_pipeline_with_functions_shares_its_driver_with_no_other(monkeypatch: Any) -> None:
    """A driver loads a module once: only a new one finds what has changed in it."""
    served: list[list[str]] = []

    async def serve(process: Any) -> str:
        await asyncio.sleep(0)
        served.append(sorted(process.pipelines))
        return await asyncio.Event().wait() and ""

    monkeypatch.setattr(drivers._Process, "serve", serve)
    processes = DriverProcesses("broker:1", "state", None)
    supervisor = Supervisor(processes, ManualScheduler(ManualClock()), ManualClock())
    own = replace(SPEC, transforms=(Part("python", {"function": "mymodule:clean"}),))
    for spec in (SPEC, replace(own, name="q"), replace(SPEC, name="r"), replace(own, name="s")):
        supervisor.put(spec, Target.RUNNING, 0)
    await turns()
    assert sorted(served) == [["p", "r"], ["q"], ["s"]]


async def test_a_restart_of_a_pipeline_with_functions_gets_a_new_driver(monkeypatch: Any) -> None:
    started: list[Any] = []

    async def serve(process: Any) -> str:
        started.append(process)
        return await asyncio.Event().wait() and ""

    monkeypatch.setattr(drivers._Process, "serve", serve)
    processes = DriverProcesses("broker:1", "state", None)
    supervisor = Supervisor(processes, ManualScheduler(ManualClock()), ManualClock())
    own = replace(SPEC, transforms=(Part("python", {"function": "mymodule:clean"}),))
    for spec in (own, replace(SPEC, name="q")):
        supervisor.put(spec, Target.RUNNING, 0)
    await turns()
    assert len(started) == 2
    for spec in (own, replace(SPEC, name="q")):
        supervisor.restart(spec.name)
        attempt = supervisor.pipelines[spec.name].attempt
        for process in started[:2]:
            process.on_event({"event": "ended", "name": spec.name, "attempt": attempt, "error": None})
    await turns()
    assert [sorted(process.pipelines) for process in started] == [[], ["q"], ["p"]]
    assert [process.is_over for process in started] == [True, False, False]


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_attempt_that_does_not_count_is_handed_on_as_such(monkeypatch: Any) -> None:
    async def serve(process: Any) -> str:
        told = {"event": "ended", "name": "p", "attempt": 1, "error": "no broker", "is_counted": False}
        process.on_event(told)
        return "the driver process ended with code 0"

    pipeline = (await served(monkeypatch, serve)).pipelines["p"]
    assert (pipeline.state, pipeline.failures) == (State.RESTARTING, 0)


def test_the_driver_that_is_started_is_there() -> None:
    from barnabas.pipelines.spark import driver

    assert driver.__name__ == drivers.DRIVER
    assert callable(driver.main)
