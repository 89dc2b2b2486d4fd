"""Writing a checkpoint file of a log directory, here or in another thread.

What to write is decided on the loop; the writes may overtake each other on their way to the disk.
"""

from __future__ import annotations

from barnabas.core.files import Files
from barnabas.storage.environment import LogDirectory


class CheckpointWrite:
    """One checkpoint to be written, here or elsewhere. An older one never undoes a newer one."""

    __slots__ = ("_content", "_directory", "_files", "_name", "_version")

    def __init__(self, files: Files, directory: LogDirectory, name: str, content: bytes) -> None:
        self._files = files
        self._directory = directory
        self._name = name
        self._content = content
        self._version = directory.checkpoints_planned = directory.checkpoints_planned + 1

    def __call__(self) -> None:
        written = self._directory.checkpoints_written
        with self._directory.checkpoint_lock:
            if self._version > written.get(self._name, 0):
                self._files.replace(f"{self._directory.path}/{self._name}", self._content)
                written[self._name] = self._version
