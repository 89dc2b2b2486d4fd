"""SIGTERM ends a broker within its deadline, also one whose loop is busy or whose shutdown hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, sys
from barnabas.config.broker_config import BrokerConfig
from barnabas.node import broker, main, stop_signals

stop_signals.SHUTDOWN_BEGUN_MS_MAX = 500
stop_signals.SHUTDOWN_MS_MAX = 500 if sys.argv[2] == "hangs" else 60_000

def busy():
    print("the loop spins", flush=True)
    while True:
        pass

async def hang(self):
    await asyncio.sleep(3600)

async def serve():
    loop = asyncio.get_running_loop()
    if sys.argv[2] == "busy":
        loop.call_later(1, busy)
    if sys.argv[2] == "hangs":
        broker.Broker.shutdown = hang
    await main.serve(config, None)

config = BrokerConfig.load({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": sys.argv[1]})
main.configure_logging("info")
make_loop = asyncio.new_event_loop if sys.argv[3] == "asyncio" else main.loop_factory()
with asyncio.Runner(loop_factory=make_loop) as runner:
    runner.run(serve())
"""


def started(directory: Path, how: str, loop: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(directory), how, loop],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return
    raise AssertionError(process.communicate()[1])


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_stops_cleanly(tmp_path: Path, signum: signal.Signals, loop: str) -> None:
    with started(tmp_path, "stops", loop) as process:
        wait_for(process, "barnabas ready")
        process.send_signal(signum)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert f"{signum.name}: shutting down" in said
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_busy_broker_is_ended_and_says_what_it_was_at(tmp_path: Path, loop: str) -> None:
    with started(tmp_path, "busy", loop) as process:
        wait_for(process, "the loop spins")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "in busy" in said
    with started(tmp_path, "stops", loop) as process:
        wait_for(process, "barnabas ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_shutdown_that_hangs_is_ended(tmp_path: Path) -> None:
    with started(tmp_path, "hangs", "asyncio") as process:
        wait_for(process, "barnabas ready")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "SIGTERM: shutting down" in said


def test_a_second_signal_is_a_plain_kill(tmp_path: Path) -> None:
    with started(tmp_path, "busy", "asyncio") as process:
        wait_for(process, "the loop spins")
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode in (-signal.SIGTERM, 1)


def test_a_shutdown_that_hangs_is_ended_though_no_process_reads_its_log(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), "hangs", "asyncio"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writing, text=True) as process:
        wait_for(process, "barnabas ready")
        fill(writing)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 1
    os.close(reading)
    os.close(writing)


def fill(pipe: int) -> None:
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, bytes(4_096))
    os.set_blocking(pipe, True)
