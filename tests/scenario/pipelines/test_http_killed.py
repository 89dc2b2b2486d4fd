"""Kill matrix of the HTTP sink: a driver dies by SIGKILL or comes back, and the receiver misses no row.

Delivery is at least once. A receiver that knows idempotency keys finds each row once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from tests.scenario.pipelines.http_driver import rows_of, send
from tests.support.broker import REPOSITORY
from tests.support.receiver import Answer, Receiver, Request, run_receiver
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kill_matrix, pytest.mark.timeout(600)]

ROWS = 12
PATIENCE_S = 240
SIZES = pytest.mark.parametrize(("row_bytes", "batch_records"), [(100, 1), (100, 5), (1_000_000, 1)])


@pytest.fixture
def service() -> Iterator[Receiver]:
    with run_receiver() as running:
        yield running


@pytest.fixture
def driver(
    service: Receiver, tmp_path: Path, row_bytes: int, batch_records: int
) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [service.url, str(ROWS), str(row_bytes), str(batch_records), str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.scenario.pipelines.http_driver", *arguments],
        env={"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}", "PATH": "/usr/bin:/bin"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def check_each_row_once(service: Receiver, row_bytes: int) -> None:
    service.answer = lambda _: Answer()
    found = []
    for each in service.taken:
        body = json.loads(each.body)
        found += body if isinstance(body, list) else [body]
    assert sorted(row["n"] for row in found) == [*range(ROWS)]
    assert {len(row["text"]) for row in found} == {row_bytes}


@SIZES
@pytest.mark.parametrize("point", [1, 2, "sent"])
def test_a_driver_killed_anywhere_leaves_no_row_out(
    service: Receiver, driver: subprocess.Popen[bytes], tmp_path: Path, row_bytes: int, batch_records: int,
    point: int | str,
) -> None:  # fmt: skip
    """At the arrival of a request, whose answer nobody waits for then; or with all rows sent."""

    def answer(_: Request) -> Answer:
        if len(service.requests) == point:
            driver.kill()
            return Answer(drops=True)
        return Answer()

    service.answer = answer
    if point == "sent":
        eventually((tmp_path / "sent").exists, timeout_s=PATIENCE_S)
        driver.kill()
    assert driver.wait(PATIENCE_S) == -signal.SIGKILL
    service.answer = lambda _: Answer()
    before = len(service.requests)
    send(service.url, rows_of(ROWS, row_bytes), batch_records)
    assert len({each.headers["idempotency-key"] for each in service.requests}) < len(service.requests)
    assert before
    check_each_row_once(service, row_bytes)


@SIZES
def test_a_driver_thought_dead_sends_rows_that_the_receiver_knows(
    service: Receiver, driver: subprocess.Popen[bytes], tmp_path: Path, row_bytes: int, batch_records: int
) -> None:
    stopped: list[bool] = []

    def answer(_: Request) -> Answer:
        if not stopped:
            stopped.append(True)
            os.kill(driver.pid, signal.SIGSTOP)
        return Answer()

    service.answer = answer
    eventually(lambda: stopped, timeout_s=PATIENCE_S)
    send(service.url, rows_of(ROWS, row_bytes), batch_records)
    os.kill(driver.pid, signal.SIGCONT)
    eventually((tmp_path / "sent").exists, timeout_s=PATIENCE_S)
    assert len(service.requests) == 2 * -(-ROWS // batch_records)
    check_each_row_once(service, row_bytes)


@SIZES
def test_lost_answers_leave_each_row_once(service: Receiver, row_bytes: int, batch_records: int) -> None:
    """Every other answer is lost after the receiver has taken the rows."""
    service.answer = lambda _: Answer(drops=len(service.requests) % 2 == 1)
    send(service.url, rows_of(ROWS, row_bytes), batch_records)
    assert len(service.requests) == 2 * -(-ROWS // batch_records)
    check_each_row_once(service, row_bytes)
