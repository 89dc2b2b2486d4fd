"""The service as users run it: a process, its driver process with Spark, and the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.fixtures import TopicFactory
from tests.support.process import ServerProcess
from tests.support.spark import REPOSITORY, require_spark
from tests.support.topics import consume, produce

PATIENCE_S = 900.0


class Service:
    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._environment = {"PYTHONPATH": str(REPOSITORY / "src"), "SPARK_MASTER": "local[2]"}
        self.process = ServerProcess(
            [sys.executable, "-m", "barnabas", "pipeline", "serve", "--listen", "127.0.0.1:0",
             "--state", str(directory / "state"), "--bootstrap", bootstrap],
            is_ready=lambda line: "listen on" in line,
            environment=self._environment,
        )  # fmt: skip
        self._url = self.process.wait_ready(PATIENCE_S).rsplit(" ", 1)[-1]

    def cli(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "barnabas", "pipeline", *arguments, "--url", self._url],
            env={**os.environ, **self._environment}, capture_output=True, text=True, check=False,
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


@pytest.fixture
def service(bootstrap: str, tmp_path: Path) -> Iterator[Service]:
    require_spark()
    running = Service(bootstrap, tmp_path)
    yield running
    assert running.process.stop() == 0, running.process.output_text()


def copying(source: str, out: str, directory: Path) -> Path:
    """A spec that copies a topic, and tries again soon."""
    spec = directory / "copy.yaml"
    spec.write_text(
        f"name: copy\nsource: {{type: topic, topics: {source}, schema: id BIGINT}}\n"
        f"sink: {{type: topic, topic: {out}}}\nrestart: {{backoff: 100 ms}}\n"
    )
    return spec


def test_a_pipeline_runs_pauses_survives_its_driver_and_begins_again(
    service: Service, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source, out = new_topic(), new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(10)])
    spec = copying(source, out, tmp_path)
    assert service.cli("start", str(spec)) == "started copy: it begins at the earliest offsets\n"
    assert service.wait("copy", "RUNNING", records=10)["delivery"] == "exactly-once"
    assert "copy" in service.cli("list")
    service.cli("pause", "copy")
    service.wait("copy", "PAUSED")
    produce(bootstrap, source, [{"id": at} for at in range(10, 15)])
    service.cli("resume", "copy")
    service.wait("copy", "RUNNING", records=15)
    assert sorted(each.json["id"] for each in consume(bootstrap, out)) == list(range(15))
    assert [source, "0", "15"] in [line.split() for line in service.cli("offsets", "copy").splitlines()]

    for driver in service.drivers():
        driver.send_signal(signal.SIGKILL)
    produce(bootstrap, source, [{"id": 15}])
    assert service.wait("copy", "RUNNING", records=16)["restarts"] >= 1
    assert sorted(each.json["id"] for each in consume(bootstrap, out)) == list(range(16))

    service.cli("stop", "copy")
    service.wait("copy", "STOPPED")
    service.cli("offsets", "copy", "--set", f"{source}:0=14")
    service.cli("start", "copy")
    service.wait("copy", "RUNNING", records=18)
    assert sorted(each.json["id"] for each in consume(bootstrap, out)) == [*range(14), 14, 14, 15, 15]
    service.cli("delete", "copy")
    assert "copy" not in service.cli("list")

    spec.write_text(spec.read_text() + "transforms:\n  - filter: uper(id) = '1'\n")
    assert "it begins at the earliest" in service.cli("start", str(spec))
    failed = service.wait("copy", "FAILED")
    assert (failed["restarts"], failed["failures"], failed["generation"]) == (0, 1, 2)
    assert failed["last_error"].startswith("transforms.0: [UNRESOLVED_ROUTINE]")


@pytest.mark.kill_matrix
def test_a_second_service_takes_over_and_the_first_stops_its_drivers(
    service: Service, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source, out = new_topic(), new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(10)])
    spec = copying(source, out, tmp_path)
    service.cli("start", str(spec))
    service.wait("copy", "RUNNING", records=10)
    younger = Service(bootstrap, tmp_path)
    try:
        assert "has taken over" in service.wait("copy", "UNASSIGNED")["last_error"]
        end = time.monotonic() + PATIENCE_S
        while service.drivers():
            assert time.monotonic() < end, "the first service keeps its driver"
            time.sleep(0.2)
        produce(bootstrap, source, [{"id": at} for at in range(10, 15)])
        younger.wait("copy", "RUNNING", records=5)
        assert sorted(each.json["id"] for each in consume(bootstrap, out)) == list(range(15))
        assert service.status("copy")["state"] == "UNASSIGNED"
        younger.cli("delete", "copy")
    finally:
        assert younger.process.stop() == 0, younger.process.output_text()
