"""Process of the shared store: `python -m barnabas.node.store_process DIRECTORY`.

It serves the embedded store in a directory to the brokers of this machine until a signal (SIGTERM, SIGINT).
Standard output gets one line when brokers can connect. The process keeps no state beside its files, so it may
be killed at any time and started again; sessions of brokers continue. It ends by itself when the disk refuses
a write, because only the recovery of the files finds out what the disk holds.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from barnabas.cluster.coordination.contract import CoordinationError, StoreFailed, StoreLocked
from barnabas.cluster.embedded.session import EmbeddedStore, make_private
from barnabas.cluster.shared import unix_socket
from barnabas.cluster.shared.server import StoreServer
from barnabas.core.clock import SystemClock
from barnabas.core.files import RealFiles
from barnabas.node.background_threads import ThreadBackground
from barnabas.node.log_output import configure_logging

READY_PREFIX = "coordination store ready"


def main(arguments: Sequence[str]) -> int:
    """Serve the store in the directory that is the only argument; returns the exit code."""
    directory = Path(arguments[0])
    configure_logging("info")
    try:
        asyncio.run(serve(directory, lambda line: print(line, flush=True)))  # noqa: T201 - a supervisor waits
    except StoreLocked:
        return _complain(f"another process has the coordination store in {directory} open; stop it")
    except StoreFailed as error:
        return _complain(
            f"the coordination store in {directory} cannot write: {error}. Make room on its disk or repair it"
        )
    except (CoordinationError, OSError) as error:
        return _complain(f"the coordination store cannot be served: {error}")
    return 0


async def serve(directory: Path, announce: Callable[[str], None]) -> None:
    """Serve until a signal. StoreFailed if the store cannot write."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopped.set)
    make_private(directory)
    background = ThreadBackground(loop, 1)
    try:
        store = EmbeddedStore.open(RealFiles(), str(directory), SystemClock(), background)
        try:
            await _serve_store(store, directory / unix_socket.SOCKET_NAME, stopped, announce)
        finally:
            await store.close()
    finally:
        await background.close()


async def _serve_store(
    store: EmbeddedStore, path: Path, stopped: asyncio.Event, announce: Callable[[str], None]
) -> None:
    server = StoreServer(store, SystemClock())
    await server.start()
    listener = await asyncio.get_running_loop().create_unix_server(
        server.accept, sock=unix_socket.listen(path)
    )
    try:
        announce(f"{READY_PREFIX}: {path}")
        stopping = asyncio.create_task(stopped.wait())
        await asyncio.wait((stopping, server.failure), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if server.failure.done():
            raise StoreFailed(str(store.failure))
    finally:
        listener.close()
        server.stop()


def _complain(message: str) -> int:
    print(f"barnabas: {message}", file=sys.stderr)  # noqa: T201 - the supervisor shows it
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
