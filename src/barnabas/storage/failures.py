"""How far an error reaches: one of the disk takes its directory offline, one of a log is that log's alone."""

from __future__ import annotations

from barnabas.core.errors import KafkaStorageError
from barnabas.storage.environment import LogDirectory


class offline_on_error:  # noqa: N801 - read as a statement
    """An I/O error inside takes the directory offline and goes no further."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, OSError | KafkaStorageError):
            return False
        self._directory.fail(error)
        return True
