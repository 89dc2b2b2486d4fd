"""Stands in for `barnabas start --config FILE`: gets ready, says what happens to it, ends when asked.

Each step is a line in `journal` beside its properties file. Files there bend its ways: `fail-<id>` ends
it before it is ready, `deaf-<id>` makes it ignore SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

config = Path(sys.argv[sys.argv.index("--config") + 1])
properties = dict(line.split("=", 1) for line in config.read_text().splitlines())
broker_id = properties["broker.id"]


def note(what: str) -> None:
    with (config.parent / "journal").open("a") as journal:
        journal.write(f"{broker_id} {what}\n")


def stop(signum: int, frame: object) -> None:
    note("stopping")
    if (config.parent / f"deaf-{broker_id}").exists():
        return
    time.sleep(0.05)
    note("stopped")
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
if (config.parent / f"fail-{broker_id}").exists():
    print("the disk is on fire", flush=True)
    sys.exit(3)
note("started")
print(
    f"barnabas ready: broker {broker_id}, listeners {properties['listeners']}, data in somewhere", flush=True
)
while True:
    signal.pause()
