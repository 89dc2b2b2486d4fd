"""Producer snapshots that a thread renders and writes.

A log may have hundreds of thousands of producers, and rendering them takes most of a second. So a roll of
such a log only freezes them (`ProducerState.freeze`), and the next flush writes the file before it syncs it
(`FlushWork`). Until then the recovery point stays below the start of the new segment: recovery finds the
previous snapshot and the records after it.

A truncation cancels the snapshots above the new end of the log. If the thread is writing one of them, the
file name is removed, and the thread finishes a file without a name.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.files import DataFile, Files
from barnabas.storage.files.log_path import LogPath
from barnabas.storage.files.names import PRODUCER_SNAPSHOT
from barnabas.storage.producers.producer_snapshot import head_of, render_pieces
from barnabas.storage.producers.producer_state import FrozenProducers
from barnabas.storage.segment.segment import write_whole


class UnwrittenSnapshot:
    """Producer state at an offset, to be written to its file."""

    __slots__ = ("_breathe", "_frozen", "_log_path", "is_cancelled", "is_written", "offset")

    def __init__(
        self, log_path: LogPath, offset: int, frozen: FrozenProducers, breathe: Callable[[], None]
    ) -> None:
        """`breathe` is called between two pieces, so that the thread yields the interpreter to the loop."""
        self.offset = offset
        self.is_written = False
        self.is_cancelled = False
        self._log_path = log_path
        self._frozen = frozen
        self._breathe = breathe

    @property
    def name(self) -> str:
        return f"{self.offset:020d}{PRODUCER_SNAPSHOT}"

    def write(self, files: Files) -> None:
        """Render and write the snapshot once, in any thread; durable only after a sync of the file."""
        if self.is_written:
            return
        pieces = []
        for piece in render_pieces(self._frozen.entries):
            if self.is_cancelled:
                return
            pieces.append(piece)
            self._breathe()
        pieces[0] = head_of(pieces)
        file = self._log_path.open(files, self.name, unless=lambda: self.is_cancelled)
        if file is None:
            return
        # A second write of the same content would put a durable file at risk.
        if not _has_content(file, pieces):
            file.truncate(0)
            position = 0
            for piece in pieces:
                write_whole(file, position, piece, self.name)
                position += len(piece)
        self.is_written = True

    def cancel(self, files: Files) -> None:
        """Remove the file, and keep the thread from creating it: the log ends below its offset."""
        self.is_cancelled = True
        self._log_path.unlink(files, self.name)
        self.release()

    def release(self) -> None:
        """Let producers change their entries in place again."""
        self._frozen.thaw()


def _has_content(file: DataFile, pieces: list[bytes]) -> bool:
    position = 0
    for piece in pieces:
        if file.read_at(position, len(piece)) != piece:
            return False
        position += len(piece)
    return not file.read_at(position, 1)
