"""Program of a group member: it notes each record that it handled, one line each, until it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from barnabas.client import Consumer, Record


async def main(bootstrap: str, topic: str, group: str, notes: Path, protocol: str) -> None:
    with notes.open("a", buffering=1) as out:

        async def handle(record: Record[Any, Any]) -> None:
            await asyncio.sleep(0.002)
            out.write(f"{record.key.decode()} {record.value.decode()}\n")

        consumer = Consumer(
            bootstrap,
            group=group,
            topics=[topic],
            group_protocol=protocol,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=20,
            heartbeat_interval_ms=100,
            session_timeout_ms=3_000,
        )
        async with consumer:
            await consumer.process(handle, concurrency=16)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5]))
