"""A real process, killed while it writes: what it acknowledged is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.manual_time import ManualClock

from barnabas.cluster.embedded.session import EmbeddedStore
from barnabas.core.files import RealFiles
from barnabas.core.scheduler import InlineBackground

WRITER = """
import asyncio, sys
from pathlib import Path
from barnabas.cluster.embedded import session as embedded
from barnabas.core.clock import SystemClock
from barnabas.core.scheduler import InlineBackground

embedded.COMPACT_BYTES_MIN = 2_000

async def write():
    async with embedded.open_embedded(Path(sys.argv[1]), SystemClock(), InlineBackground()) as znodes:
        await znodes.create("/mine", ephemeral=True)
        await znodes.create("/a", b"")
        number = 0
        while True:
            number += 1
            await znodes.set("/a", b"%d" % number)
            print(number, flush=True)

asyncio.run(write())
"""


def test_a_killed_process_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    acknowledged = 0
    for until in (40, 170):
        path = tmp_path / str(until)
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": "src"},
        )
        assert writer.stdout is not None
        with writer:
            for line in writer.stdout:
                acknowledged = int(line)
                if acknowledged == until:
                    writer.kill()
        store = EmbeddedStore.open(RealFiles(), str(path), ManualClock(), InlineBackground())
        found = int(store.nodes["/a"].data)
        assert acknowledged <= found <= acknowledged + 1
        assert store.nodes["/a"].version == found
        assert "/mine" not in store.nodes
        store._journal.close()
