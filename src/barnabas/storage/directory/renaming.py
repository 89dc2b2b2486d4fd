"""Renaming of a log that is deleted, or set aside for an operator.

The name is free again at once. A deleted log leaves the disk later.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaStorageError
from barnabas.storage.directory.disk_errors import keep_trying
from barnabas.storage.directory.unusable_logs import BegunLog, DamagedLog
from barnabas.storage.files.delayed_delete import remove_later
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.files.names import DELETE_DIRECTORY, renamed_directory
from barnabas.storage.log.log import Log


def rename_aside(
    environment: Environment, log: Log | DamagedLog | BegunLog, suffix: str, *, delay_ms: int
) -> None:
    log_directory = log.log_directory
    unique = environment.randomness.randbytes(16).hex()
    new = f"{log_directory.path}/{renamed_directory(log.topic_partition, unique, suffix)}"
    try:
        if isinstance(log, Log):
            log.rename_to(new)
        else:
            environment.files.rename(log.directory, new)
    except OSError as error:
        log_directory.take_offline(error)
        raise KafkaStorageError(f"deleting {log.topic_partition}: {error}") from error
    _sync_names(environment, log_directory)
    if suffix == DELETE_DIRECTORY:
        remove_later(environment, new, delay_ms=delay_ms)


def _sync_names(environment: Environment, log_directory: LogDirectory) -> None:
    """Sync the directory. The log is renamed already, so no caller would retry this."""
    files, path = environment.files, log_directory.path
    try:
        files.sync_directory(path)
    except OSError as error:
        log_directory.fail(error)
        if log_directory.failure is not None:
            raise KafkaStorageError(f"renaming a log in {path}: {error}") from error
        keep_trying(environment, log_directory, lambda: files.sync_directory(path))
