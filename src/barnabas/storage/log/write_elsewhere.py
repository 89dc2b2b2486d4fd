"""One write of a large append, on its way into the file; `append_elsewhere` tells the whole of it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from threading import Lock

from barnabas.core.errors import KafkaError
from barnabas.core.files import DataFile
from barnabas.records.validation import ValidatedRecords
from barnabas.storage.log.append import AppendInfo
from barnabas.storage.names import LOG
from barnabas.storage.segment.segment import Segment, write_whole

Outcome = AppendInfo | KafkaError
"""What an append did, or why it did not."""


class WriteElsewhere:
    """One write. It is done once, by whoever comes first: the thread, or somebody who cannot wait for it."""

    __slots__ = (
        "_file", "_lock", "_path", "_position", "base_offset", "error", "is_done", "outcome", "report",
        "segment", "validated",
    )  # fmt: skip

    def __init__(
        self,
        segment: Segment,
        validated: ValidatedRecords,
        base_offset: int,
        report: Callable[[Outcome], None],
    ) -> None:
        self.segment = segment
        self.validated = validated
        self.base_offset = base_offset
        self.report = report
        self.outcome: Outcome | None = None
        """Once the log has taken note of it."""
        self.error: OSError | None = OSError(errno.EIO, "the write did not come to its end")
        self.is_done = False
        self._file: DataFile = segment.file
        self._path = segment.path(LOG)
        self._position = segment.size_bytes
        self._lock = Lock()

    def perform(self) -> None:
        with self._lock:
            if self.is_done:
                return
            self.is_done = True
            try:
                write_whole(self._file, self._position, self.validated.buffer, self._path)
                self.error = None
            except OSError as error:
                self.error = error
