"""A bounded run of what `make chaos` does for as long as one asks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.chaos.namespaces import why_not
from tests.chaos.verdict import report
from tests.support.broker import REPOSITORY
from tests.support.zookeeper import require_zookeeper

SLICE_S = 12
"""Of `make test`: two faults or three."""
SHORT_S = 20
LONG_S = 90
RUN_TIMEOUT_S = 540
"""A run that is ended then has the rest of the test's time to clean up and say where it was."""


@pytest.mark.timeout(600)
def test_nothing_is_lost_in_a_short_storm() -> None:
    torment(SLICE_S)


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_while_everything_breaks() -> None:
    torment(LONG_S)


@pytest.mark.timeout(600)
def test_nothing_is_lost_in_a_storm_on_secured_listeners() -> None:
    torment(SHORT_S, "--secure")


@pytest.mark.timeout(600)
def test_nothing_is_lost_in_a_storm_on_the_shared_store() -> None:
    torment(SHORT_S, store="shared")


def torment(seconds: int, *more: str, store: str = "zookeeper") -> None:
    if store == "zookeeper":
        require_zookeeper()
    more = ("--store", store, *more)
    command = [sys.executable, "-m", "tests.chaos.run", "--seconds", str(seconds), "--brokers", "3", *more]
    uncut = why_not()
    if uncut is not None:
        command.append("--loopback")
    running = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        output, errors = running.communicate(timeout=RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        running.terminate()
        output, errors = running.communicate()
    if running.returncode != 0:
        pytest.fail(report(output, errors), pytrace=False)
    if uncut is not None:
        pytest.skip(f"passed, but no link was cut and no disk was full: {uncut}")
