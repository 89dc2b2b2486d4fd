"""The data directory of one measurement: emptied when it ends, removed when the program does.

ext4 does not give an inode away again for minutes after its file was deleted, and passes by all of those one
by one whenever a file is made. A program that creates thousands of files soon after thousands were deleted
takes up to ten times as long. Each subject would pay for the one before. So files keep their inodes until the
end; only their bytes go, which would fill memory and disk. The disk has done with that before the next
subject starts.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_directory(name: str) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    try:
        yield directory
    finally:
        for folder, _, names in os.walk(directory):
            for each in names:
                path = Path(folder) / each
                if path.is_file():  # a broker that was killed leaves its socket
                    os.truncate(path, 0)
        os.sync()
