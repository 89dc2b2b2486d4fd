"""Driver processes of the service.

Pipelines with the same Spark settings share a driver. It starts with the first of them and stops when the
last has ended. A pipeline with a user's functions (`python:`) has its own driver, so that a restart loads
them again and their effects reach no other pipeline.

A driver that dies takes its pipelines with it. The cause among several is unknown, so none counts a failure,
and each gets its own driver until it has been stopped. A pipeline alone in its driver counts the failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.core.tasks import Tasks
from barnabas.pipelines.service.supervisor import Observer
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.pipelines.state.progress import Progress
from barnabas.security.identity.secret_references import UnresolvedSecret, resolve

logger = logging.getLogger(__name__)

DRIVER = "barnabas.pipelines.spark.driver"
"""Module name only: it needs Spark, in the process that runs it."""
LINE_BYTES_MAX = 4 * 1024 * 1024
LOG_CHUNK_BYTES = 64 * 1024
LOG_LINE_BYTES_MAX = 16 * 1024
QUIT_TIMEOUT_S = 30.0


class DriverProcesses:
    """Implements `supervisor.Drivers`."""

    def __init__(self, bootstrap: str, state_location: str, master: str | None) -> None:
        self._bootstrap = bootstrap
        self._state_location = state_location
        self._master = master
        self._processes: dict[str, _Process] = {}
        self._process_of: dict[str, _Process] = {}
        self._apart: set[str] = set()
        """Pipelines with their own driver because a shared one has died."""
        self._tasks = Tasks()
        self._is_closing = False

    def start(self, spec: PipelineSpec, generation: int, attempt: int, observer: Observer) -> None:
        if self._is_closing:
            return
        master = spec.spark.master or self._master
        apart_as = self._apart_as(spec)
        key = json.dumps([master, sorted(spec.spark.conf.items()), apart_as])
        process = self._processes.get(key)
        if process is None or process.is_over:
            settings = {"master": master, "conf": dict(spec.spark.conf)}
            process = self._processes[key] = _Process(settings, is_reused=apart_as is None)
            self._tasks.start(self._serve(process, key))
        self._process_of[spec.name] = process
        process.pipelines[spec.name] = _Started(attempt, observer)
        process.order(
            do="start",
            spec=spec.to_document(),
            bootstrap=self._bootstrap,
            state_location=self._state_location,
            generation=generation,
            attempt=attempt,
        )

    def _apart_as(self, spec: PipelineSpec) -> str | None:
        """Name of a pipeline that does not share its driver."""
        is_apart = spec.name in self._apart or any(part.type == "python" for part in spec.transforms)
        return spec.name if is_apart else None

    def stop(self, name: str) -> None:
        self._apart.discard(name)
        process = self._process_of.get(name)
        if process is not None:
            process.order(do="stop", name=name)

    async def close(self) -> None:
        self._is_closing = True
        await asyncio.gather(*(process.quit() for process in self._processes.values()))
        await self._tasks.finished()

    async def _serve(self, process: _Process, key: str) -> None:
        is_final = False
        try:
            reason = await process.serve()
            is_final = process.unable is not None
        except (OSError, UnresolvedSecret) as error:
            reason = f"the driver could not be started: {error}"
            is_final = isinstance(error, UnresolvedSecret)
        except Exception as error:
            # Its pipelines are no longer watched, so they must not appear to run.
            logger.exception("cannot read the events of a pipeline driver; its pipelines end")
            reason = f"the events of the driver could not be read: {error}"
        if self._processes.get(key) is process:
            del self._processes[key]
        lost = list(process.pipelines.items())
        is_shared = len(lost) > 1 and not is_final
        if is_shared and not self._is_closing:
            self._apart.update(name for name, _ in lost)
            reason = f"{reason} (it ran {len(lost)} pipelines: each gets its own driver now)"
        for name, (attempt, observer) in lost:
            observer.on_ended(name, attempt, reason, is_final=is_final, is_counted=not is_shared)


class _Started(NamedTuple):
    attempt: int
    observer: Observer


class _Process:
    def __init__(self, settings: Mapping[str, Any], *, is_reused: bool) -> None:
        self.pipelines: dict[str, _Started] = {}
        self.is_over = False
        self.unable: str | None = None
        """Reason why no driver can run here."""
        self._settings = settings
        self._is_reused = is_reused
        """Whether a restart of the only pipeline may use this process again."""
        self._orders: asyncio.Queue[str | None] = asyncio.Queue()
        self._process: asyncio.subprocess.Process | None = None

    def order(self, **order: Any) -> None:
        self._orders.put_nowait(json.dumps(order) + "\n")

    def end_input(self) -> None:
        """Close the input: the driver then stops its pipelines and ends."""
        self.is_over = True
        self._orders.put_nowait(None)

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Handle an event of the driver. Events of a replaced attempt are ignored."""
        kind = event["event"]
        if kind == "unable":
            self.unable = event["error"]
        if kind in ("ready", "unable"):
            return
        name, attempt = event["name"], event["attempt"]
        started = self.pipelines.get(name)
        if started is None or started.attempt != attempt:
            return
        if kind == "running":
            started.observer.on_running(name, attempt)
        elif kind == "progress":
            started.observer.on_progress(name, attempt, Progress.of_document(event["progress"]))
        elif kind == "ended":
            del self.pipelines[name]
            if not self._is_reused:
                self.end_input()
            started.observer.on_ended(  # a restart begins the next attempt in this call
                name,
                attempt,
                event["error"],
                is_final=event.get("is_final", False),
                is_counted=event.get("is_counted", True),
            )
            if not self.pipelines and not self.is_over:
                self.end_input()

    async def quit(self) -> None:
        self.end_input()
        if self._process is not None:
            try:
                await asyncio.wait_for(self._process.wait(), QUIT_TIMEOUT_S)
            except TimeoutError:
                self._process.kill()

    async def serve(self) -> str:
        """Run the process until it ends; returns the reason for the pipelines that it ran."""
        resolved = json.dumps(resolve(self._settings)) + "\n"
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            DRIVER,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(resolved.encode())
        feeding = asyncio.create_task(self._feed(process.stdin))
        listening = asyncio.create_task(self._errors(process))
        try:
            await self._listen(process)
            code = await process.wait()
            last = await listening
        finally:
            self.is_over = True
            feeding.cancel()
            listening.cancel()
            if process.returncode is None:
                process.kill()
        if self.unable is not None:
            return self.unable
        return f"the driver process ended with code {code}" + (f": {last}" if last else "")

    async def _feed(self, stdin: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while (line := await self._orders.get()) is not None:
                stdin.write(line.encode())
                await stdin.drain()
            stdin.close()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self.on_event(json.loads(line))

    async def _errors(self, process: asyncio.subprocess.Process) -> str:
        """Copy the driver's log to ours; returns its last line, which often names the cause of death.

        Spark, its JVM and users' functions print here, in lines of any length. The pipe must be read
        continuously: a full pipe would block the driver.
        """
        assert process.stderr is not None
        last, rest = "", b""
        while chunk := await process.stderr.read(LOG_CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[:LOG_LINE_BYTES_MAX]
            for line in lines:
                last = _logged(line) or last
        return _logged(rest) or last


def _logged(line: bytes) -> str:
    text = line[:LOG_LINE_BYTES_MAX].decode("utf-8", "replace").rstrip()
    if text:
        logger.debug("driver: %s", text)
    return text
