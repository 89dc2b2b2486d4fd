"""Taking a log out of its place by name: on its way to deletion, or aside for a person to look at.

The name is free again at once; what is to be deleted goes from the disk later.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaStorageError
from barnabas.storage.directory.begun_log import BegunLog
from barnabas.storage.directory.damaged_log import DamagedLog
from barnabas.storage.directory.disk_errors import keep_trying
from barnabas.storage.environment import Environment, LogDirectory
from barnabas.storage.log.log import Log
from barnabas.storage.names import DELETE_DIRECTORY, renamed_directory
from barnabas.storage.removal import remove_later


def rename_aside(
    environment: Environment, log: Log | DamagedLog | BegunLog, suffix: str, *, delay_ms: int
) -> None:
    home = log.log_directory
    unique = environment.randomness.randbytes(16).hex()
    new = f"{home.path}/{renamed_directory(log.topic_partition, unique, suffix)}"
    try:
        if isinstance(log, Log):
            log.rename_to(new)
        else:
            environment.files.rename(log.directory, new)
    except OSError as error:
        home.take_offline(error)
        raise KafkaStorageError(f"deleting {log.topic_partition}: {error}") from error
    _sync_names(environment, home)
    if suffix == DELETE_DIRECTORY:
        remove_later(environment, new, delay_ms=delay_ms)


def _sync_names(environment: Environment, home: LogDirectory) -> None:
    """A log has another name already, so nobody would ask for this again."""
    files, path = environment.files, home.path
    try:
        files.sync_directory(path)
    except OSError as error:
        home.fail(error)
        if home.failure is not None:
            raise KafkaStorageError(f"renaming a log in {path}: {error}") from error
        keep_trying(environment, home, lambda: files.sync_directory(path))
