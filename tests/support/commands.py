"""Runs of a `barnabas` command inside the test process.

A process per command costs 0.2 s of CPU, nearly all of it for imports. The command still gets a real file as
standard input, streams of its own and its exit code. Tests of signals and pipes start real processes.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest import mock

from barnabas.cli.main import main


class Ended(NamedTuple):
    code: int
    stdout: bytes
    stderr: bytes


def run_command(*arguments: str, stdin: bytes = b"", environment: Mapping[str, str] = os.environ) -> Ended:
    with ExitStack() as stack:
        given = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
        given.buffer.write(stdin)
        given.seek(0)
        stdout, stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        stack.enter_context(mock.patch.dict(os.environ, environment, clear=True))
        stack.enter_context(mock.patch.object(sys, "argv", ["barnabas", *arguments]))
        stack.enter_context(mock.patch.object(sys, "stdin", given))
        stack.enter_context(redirect_stdout(stdout))
        stack.enter_context(redirect_stderr(stderr))
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        else:
            code = 0
        return Ended(code if isinstance(code, int) else 0, _written(stdout), _written(stderr))


def _written(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue()
