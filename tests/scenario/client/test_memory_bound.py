"""Memory of the producer while its broker is away (`bench/outage.py` measures a minute)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

BUFFER_BYTES = 16 * 1024 * 1024
IN_FLIGHT_BYTES = 8 * 1024 * 1024
"""Five requests of a megabyte are copied into the socket's buffers, and the allocator rounds up."""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["paused", "killed"])
def test_the_buffer_bounds_the_memory_while_the_broker_is_away(how: str) -> None:
    command = [sys.executable, "-m", "bench.outage", "--how", how, "--seconds", "4"]
    done = subprocess.run(
        [*command, "--buffer-bytes", str(BUFFER_BYTES)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["least_left_bytes"] < 64 * 1024, "the buffer was full"
    assert found["waiting_senders"] == 100, "and the senders waited"
    assert found["rss_peak_bytes"] - found["rss_before_bytes"] < BUFFER_BYTES + IN_FLIGHT_BYTES
    assert found["acknowledged"] == found["sent"] > 0
