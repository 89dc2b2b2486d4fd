"""The process of an update, with a program that stands in for Spark: its outcome, and its end."""

from __future__ import annotations

import asyncio
import os
import textwrap
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from barnabas.pipelines.service.hosting import update_process
from barnabas.pipelines.service.hosting.update_process import Outcome, run_update
from tests.support.waiting import eventually

PATIENCE_S = 60.0
LEFT_OVER = "import time; time.sleep(600)"


def stand_in(monkeypatch: pytest.MonkeyPatch, directory: Path, program: str) -> None:
    (directory / "stand_in_update.py").write_text(textwrap.dedent(program))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(update_process, "UPDATE", "stand_in_update")


def outcome_of(monkeypatch: pytest.MonkeyPatch, directory: Path, program: str) -> Outcome:
    stand_in(monkeypatch, directory, program)
    return asyncio.run(run_update("spark-pipeline.yml", asyncio.Event()))


def test_the_last_line_is_the_outcome(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = """
        import json, sys
        sys.stderr.write("x" * 1_000_000)
        print("something else")
        print(json.dumps({"error": "no column in " + sys.argv[1], "is_away": True}))
    """
    expected = Outcome("no column in spark-pipeline.yml", is_away=True)
    assert outcome_of(monkeypatch, tmp_path, program) == expected


def test_an_update_that_dies_has_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = outcome_of(monkeypatch, tmp_path, "import sys; sys.exit(3)")
    assert found == Outcome("the process of the update ended with code 3")


def test_nothing_of_an_update_outlives_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = f"""
        import json, subprocess, sys
        left = subprocess.Popen([sys.executable, "-c", {LEFT_OVER!r}], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
        print(json.dumps({{"error": str(left.pid), "is_away": False}}))
    """
    found = outcome_of(monkeypatch, tmp_path, program)
    assert found.error is not None
    wait_gone(int(found.error))


def test_a_stop_ends_an_update(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    program = f"""
        import os, pathlib, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", {LEFT_OVER!r}])
        pathlib.Path({str(note)!r} + ".tmp").write_text(f"{{os.getpid()}} {{child.pid}}")
        os.rename({str(note)!r} + ".tmp", {str(note)!r})
        sys.stdin.read()
        os.killpg(0, 9)
    """
    stand_in(monkeypatch, tmp_path, program)

    async def stop_it() -> Outcome:
        stopped = asyncio.Event()
        update = asyncio.create_task(run_update("spark-pipeline.yml", stopped))
        async with asyncio.timeout(PATIENCE_S):
            while not note.exists():  # noqa: ASYNC110 - the file of another process
                await asyncio.sleep(0.02)
            stopped.set()
            return await update

    assert asyncio.run(stop_it()).error == "the process of the update ended with code -9"
    for process_id in map(int, note.read_text().split()):
        wait_gone(process_id)


def wait_gone(process_id: int) -> None:
    eventually(lambda: not is_running(process_id), timeout_s=PATIENCE_S)


def is_running(process_id: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE)
    return False
