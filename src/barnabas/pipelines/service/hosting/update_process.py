"""Child process that runs one update of a declarative pipeline, and its outcome.

The update ends when the pipe to it closes: when this service ends, however it ends, and when a user stops the
pipeline.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Final, NamedTuple

logger = logging.getLogger(__name__)

UPDATE: Final = "barnabas.pipelines.spark.declarative_update"
"""Module name only: it needs Spark, in the process that runs it."""
CHUNK_BYTES: Final = 64 * 1024
LINE_BYTES_MAX: Final = 4 * 1024 * 1024
END_TIMEOUT_S: Final = 30.0


class Outcome(NamedTuple):
    error: str | None = None
    is_away: bool = False
    """The failure means a cluster, database or registry out of reach."""


async def run_update(file: str, stopped: asyncio.Event) -> Outcome:
    """Run one update to its end, or end it when `stopped` is set."""
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            UPDATE,
            file,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
    except OSError as error:
        return Outcome(f"the update could not be started: {error}")
    logged = asyncio.create_task(_log(process))
    answered = asyncio.create_task(_last_line(process))
    stopping = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({answered, stopping}, return_when=asyncio.FIRST_COMPLETED)
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(END_TIMEOUT_S):
            line = await answered
            code = await process.wait()
        return _outcome(line, code)
    except TimeoutError:
        return Outcome("the update did not end in time and was killed")
    finally:
        for task in (logged, answered, stopping):
            task.cancel()
        # Whatever of Spark is left would write beside the next update.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _outcome(line: bytes, code: int) -> Outcome:
    try:
        found = json.loads(line)
        return Outcome(found["error"], bool(found["is_away"]))
    except (ValueError, KeyError, TypeError):
        return Outcome(f"the process of the update ended with code {code}")


async def _last_line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    last = b""
    while line := await process.stdout.readline():
        last = line
    return last


async def _log(process: asyncio.subprocess.Process) -> None:
    """Copy Spark's output to our log. The pipe must be read continuously: a full pipe would block Spark."""
    assert process.stderr is not None
    while chunk := await process.stderr.read(CHUNK_BYTES):
        for line in chunk.splitlines():
            logger.debug("update: %s", line.decode("utf-8", "replace"))
