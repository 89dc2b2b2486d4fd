"""The pipeline service as users run it: a process, its driver process with Spark, and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from tests.support.process import ServerProcess
from tests.support.spark import REPOSITORY

PATIENCE_S = 900.0


class Service:
    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._environment = {"PYTHONPATH": str(REPOSITORY / "src"), "SPARK_MASTER": "local[2]"}
        self.process = ServerProcess(
            [sys.executable, "-m", "barnabas", "pipeline", "serve", "--listen", "127.0.0.1:0",
             "--state", str(directory / "state"), "--bootstrap", bootstrap],
            is_ready=lambda line: "listen on" in line,
            environment=self._environment,
        )  # fmt: skip
        self.url = self.process.wait_ready(PATIENCE_S).rsplit(" ", 1)[-1]

    def cli(self, *arguments: str) -> str:
        return self.barnabas("pipeline", *arguments, "--url", self.url)

    def barnabas(self, *arguments: str) -> str:
        """A command of a user of this service and its cluster."""
        known = {"BARNABAS_BOOTSTRAP": self._bootstrap, "BARNABAS_PIPELINES": self.url}
        done = subprocess.run(
            [sys.executable, "-m", "barnabas", *arguments],
            env={**os.environ, **self._environment, **known}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cli("status", name, "--json"))["pipeline"]
        return found

    def wait(self, name: str, state: str, *, records: int = 0) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            found = self.status(name)
            if found["state"] == state and found["records"] >= records:
                return found
            assert found["state"] != "FAILED" or state == "FAILED", found
            time.sleep(0.5)
        raise AssertionError(f"{found}, not {state} with {records} records")

    def drivers(self) -> list[psutil.Process]:
        return [
            child
            for child in psutil.Process(self.process.pid).children()
            if "barnabas.pipelines.spark.driver" in child.cmdline()
        ]
