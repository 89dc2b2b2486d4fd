"""Lines of standard input for an event loop, read by a thread.

The thread reads at most a few chunks ahead. So lines that arrive together are sent together, and a line typed
at a terminal is sent at once. Ctrl-C does not wait for Enter, because the thread is a daemon and is never
joined.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

CHUNK_BYTES = 256 * 1024
CHUNKS_AHEAD = 4
LINE_BYTES_MAX = 100 * 1024 * 1024
"""Default of socket.request.max.bytes: no broker accepts a longer line in one request."""


class LineTooLong(Exception):
    """Raised while the line is still being read, since it may have no end."""


async def read_lines(file_descriptor: int) -> AsyncIterator[list[bytes]]:
    """Groups of complete lines without line ends. The last line needs no line end."""
    pieces: list[bytes] = []  # of the incomplete line; joined once, since it may be long
    pieces_bytes = 0
    async for chunk in _read_chunks(file_descriptor):
        first, *others = chunk.split(b"\n")
        pieces.append(first)
        pieces_bytes += len(first)
        if others:
            lines = [b"".join(pieces), *others]
            rest = lines.pop()
            pieces, pieces_bytes = [rest], len(rest)
            yield [line.removesuffix(b"\r") for line in lines]
        if pieces_bytes > LINE_BYTES_MAX:
            raise LineTooLong(f"a line is longer than {LINE_BYTES_MAX} bytes, more than a broker accepts")
    if pieces_bytes:
        yield [b"".join(pieces).removesuffix(b"\r")]


async def _read_chunks(file_descriptor: int) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_AHEAD)

    def read() -> None:
        chunk: bytes | OSError = b"not empty"
        while chunk and not isinstance(chunk, OSError):
            room.acquire()
            try:
                chunk = os.read(file_descriptor, CHUNK_BYTES)
            except OSError as error:
                chunk = error
            with suppress(RuntimeError):  # the loop may be closed, and then no task wants lines
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise chunk
        room.release()
        yield chunk
