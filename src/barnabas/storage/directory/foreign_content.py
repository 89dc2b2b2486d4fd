"""Foreign content in a log directory: files that a broker would take for logs of its own.

Every sub-directory named `<something>-<number>` counts as a log. A directory of other things has such names
too: a local cluster's directory has `broker-1`, a folder of projects has `project-2`. Deleting that "topic"
would delete those files. So the broker checks the directory before it writes to it, and refuses it with a
reason.

- The directory of a local cluster is never one broker's log directory.
- A directory without `meta.properties` has no owner yet. It may hold only Kafka's files. A directory with a
  log's name holds a log's files or none (a log that was just created). Hidden files are ignored, and so is
  `lost+found`, which every fresh file system has.
"""

from __future__ import annotations

import re
from typing import Final

from barnabas.core.files import Files
from barnabas.storage.directory.directory_properties import META_PROPERTIES
from barnabas.storage.files import checkpoints, names

BESIDE_THE_LOGS: Final = frozenset(
    {"coordination", "zookeeper", "secure", "lost+found", names.CLUSTER_METADATA}
)
"""Sub-directories that are not logs: both coordination stores, the certificates and passwords of `--secure`,
the file system's `lost+found`, KRaft's metadata log."""

KAFKAS_FILES: Final = frozenset(
    {
        META_PROPERTIES,
        "bootstrap.checkpoint",
        checkpoints.RECOVERY_POINTS,
        checkpoints.LOG_START_OFFSETS,
        checkpoints.HIGH_WATERMARKS,
        checkpoints.CLEANED_OFFSETS,
    }
)

_BROKER_OF_A_CLUSTER = re.compile(r"broker-\d+\.properties")
_LOGS_FILES = frozenset({names.LEADER_EPOCHS, names.PARTITION_METADATA, names.SUPERSEDED, names.MADE_ANEW})
_TEMPORARY = (names.DELETED, names.CLEANED, names.SWAP, ".tmp")


def foreign_content(files: Files, directory: str) -> str | None:
    """Reason why this cannot be a broker's log directory, as a sentence; None if it can."""
    entries = files.list(directory)
    for entry in entries:
        if _BROKER_OF_A_CLUSTER.fullmatch(entry.name) and not entry.is_directory:
            return f"{directory} is the home of a cluster: it holds {entry.name}"
    if any(entry.name == META_PROPERTIES for entry in entries):
        return None
    for entry in sorted(entries):
        if entry.is_directory and names.parse_log_directory(entry.name):
            reason = _not_a_log(files, f"{directory}/{entry.name}")
            if reason is not None:
                return reason
        known = _is_kafkas_directory if entry.is_directory else _is_kafkas_file
        if not known(entry.name):
            return f"{directory} is not empty, and {entry.name} in it is not a broker's"
    return None


def _not_a_log(files: Files, path: str) -> str | None:
    inside = files.list(path)
    if any(entry.name == META_PROPERTIES for entry in inside):
        return f"{path} is the log directory of another broker, not a partition"
    if inside and not any(_is_of_a_log(entry.name) for entry in inside):
        return f"{path} has the name of a partition, but holds {min(inside).name} and no log"
    return None


def _is_of_a_log(name: str) -> bool:
    bare = name
    for suffix in _TEMPORARY:
        bare = bare.removesuffix(suffix)
    return names.parse_segment_file(bare) is not None or bare in _LOGS_FILES


def _is_kafkas_directory(name: str) -> bool:
    return (
        name.startswith(".")
        or name in BESIDE_THE_LOGS
        or names.parse_log_directory(name) is not None
        or names.renamed_suffix(name) is not None
    )


def _is_kafkas_file(name: str) -> bool:
    return name.startswith(".") or name.removesuffix(".tmp") in KAFKAS_FILES
