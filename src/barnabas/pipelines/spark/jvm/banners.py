"""Filter for banners of a JVM on standard error: lines that no option of Java or Spark turns off.

The JVM inherits the standard error of this process. So it is started with a pipe instead. While the JVM
lives, a thread passes on everything but the banners.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

BANNERS = (b"WARNING: Using incubator modules: jdk.incubator.vector\n",)
STANDARD_ERROR = 2
CHUNK_BYTES = 1 << 16


@contextmanager
def without_banners(descriptor: int = STANDARD_ERROR) -> Iterator[None]:
    """Start children inside: their output to `descriptor` is filtered, until all of them have ended."""
    reading, writing = os.pipe()
    original = os.dup(descriptor)
    os.dup2(writing, descriptor)
    os.close(writing)
    threading.Thread(
        target=_pass_on, args=(reading, os.dup(original)), name="banners of the JVM", daemon=True
    ).start()
    try:
        yield
    finally:
        os.dup2(original, descriptor)
        os.close(original)


def _pass_on(reading: int, target: int) -> None:
    try:
        # The JVM writes a banner with one call, so no banner is spread over two chunks.
        while chunk := os.read(reading, CHUNK_BYTES):
            for banner in BANNERS:
                chunk = chunk.replace(banner, b"")
            while chunk:
                chunk = chunk[os.write(target, chunk) :]
    except OSError:
        # The reader of standard error is gone.
        pass
    finally:
        os.close(reading)
        os.close(target)
