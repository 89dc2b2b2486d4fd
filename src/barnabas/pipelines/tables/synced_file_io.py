"""File access of pyiceberg that syncs what it writes on a local disk.

A catalogue names a metadata file in a durable transaction. The metadata file and the manifests below it
must be on disk before that, or a power failure leaves a table that cannot be opened.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from barnabas.pipelines.state.durable_files import local_path, sync_files


class SyncedFileIO(PyArrowFileIO):
    def new_output(self, location: str) -> PyArrowFile:
        made = super().new_output(location)
        path = local_path(location)
        if path is None:
            return made
        create = made.create

        def created(overwrite: bool = False) -> Any:
            return _SyncedStream(create(overwrite), location)

        made.create = created  # type: ignore[method-assign]
        return made


class _SyncedStream:
    """An output stream that syncs its file and the names above it when it is closed."""

    def __init__(self, stream: OutputStream, location: str) -> None:
        self._stream = stream
        self._location = location

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> Self:
        self._stream.__enter__()
        return self

    def __exit__(
        self,
        exctype: type[BaseException] | None,
        excinst: BaseException | None,
        exctb: TracebackType | None,
    ) -> None:
        self._stream.__exit__(exctype, excinst, exctb)
        self._sync()

    def close(self) -> None:
        self._stream.close()
        self._sync()

    def _sync(self) -> None:
        path = local_path(self._location)
        assert path is not None
        sync_files([path, path.parent])
