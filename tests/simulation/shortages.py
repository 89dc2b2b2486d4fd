"""Memory that the kernel refuses to the processes of a machine.

The cleaner takes its map of keys as an anonymous mapping, beside all files. Here the mapping is refused to a
process whose machine is in `WITHOUT_MEMORY`, as under RLIMIT_AS or with `vm.overcommit_memory=2`.
"""

from __future__ import annotations

import errno
import mmap
import types

from barnabas.storage.cleaner import offset_map
from tests.simulation.loop import PROCESS

WITHOUT_MEMORY: set[str] = set()
"""Addresses of machines."""


def _map(descriptor: int, size_bytes: int) -> mmap.mmap:
    process = PROCESS.get()
    if process is not None and process.host in WITHOUT_MEMORY:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")
    return mmap.mmap(descriptor, size_bytes)


offset_map.mmap = types.SimpleNamespace(mmap=_map)  # type: ignore[attr-defined,assignment]
