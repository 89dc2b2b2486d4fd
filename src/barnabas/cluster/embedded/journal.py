"""Journal of the embedded store: a snapshot of the tree and a log of later transactions, each stored twice.

The log and its copy are equal, byte for byte. An append is written to the log and synced, then written to the
copy and synced, and only then acknowledged. Recovery relies on that order:

- A record that is readable in either file is good. One bad bit in one of the files loses nothing.
- A record that is readable in neither was never acknowledged if the copy ends before it. The copy is written
  after the sync of the log. It is an append that a crash tore, and is cut off.
- If the copy goes on there, the record was on disk, and both files are damaged. The store refuses to open:
  continuing would hand out ids twice and forget topics, settings and users.

So opening finds every acknowledged transaction or refuses, at any moment of a crash and with damage to either
file.

Compaction writes the copy of the snapshot, then the snapshot (each beside the old one, synced and renamed).
Only then it empties the copy of the log and the log, in this order. A crash in between leaves records in the
log that the snapshot already holds. Their zxids identify them.

A store of an earlier version has no copies; opening makes them. Without a copy, the bytes behind an
unreadable record decide: whole records there mean damage, otherwise the append was torn.
"""

from __future__ import annotations

import logging
from typing import Final

from barnabas.cluster.coordination.contract import StoreDamaged, StoreLocked
from barnabas.cluster.embedded.journal_codec import (
    FRAME,
    LOG_HEAD,
    TRANSACTION_KIND,
    decode_snapshot,
    decode_transaction,
    unframe,
)
from barnabas.cluster.embedded.tree import Tree
from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import DataFile, Files, Held

logger = logging.getLogger(__name__)

LOG: Final = "log"
LOG_COPY: Final = "log.copy"
SNAPSHOT: Final = "snapshot"
SNAPSHOT_COPY: Final = "snapshot.copy"
LOCK: Final = ".lock"


class LogNotEmptied(Exception):
    """A compaction failed after its snapshot was in place: no append to the log is allowed any more."""


class Journal:
    """Open files of the journal. `append` and `compact` block and may run off the loop, one at a time."""

    def __init__(
        self,
        files: Files,
        directory: str,
        lock: Held,
        log: DataFile,
        copy: DataFile,
        log_bytes: int,
        snapshot_bytes: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._lock = lock
        self._log = log
        self._copy = copy
        self.log_bytes = log_bytes
        self.snapshot_bytes = snapshot_bytes

    def append(self, frames: bytes) -> None:
        for file in (self._log, self._copy):
            _write(file, self.log_bytes, frames)
            file.sync()
        self.log_bytes += len(frames)

    def compact(self, snapshot: bytes) -> None:
        """Replace the log by `snapshot`, which holds every appended transaction.

        After an OSError the log is unchanged; after LogNotEmptied the journal is unusable.
        """
        _replace_snapshots(self._files, self._directory, snapshot)
        try:
            for file in (self._copy, self._log):
                file.truncate(0)
                file.sync()
        except OSError as error:
            raise LogNotEmptied(str(error)) from error
        self.log_bytes = 0
        self.snapshot_bytes = len(snapshot)

    def close(self) -> None:
        # A file closes with its last reference, and a stopped store may still be referenced.
        del self._log, self._copy
        self._lock.release()


def open_journal(files: Files, directory: str) -> tuple[Journal, Tree]:
    """Lock the directory (created if missing), recover the tree and make both copies equal."""
    files.make_lasting_directory(directory)
    try:
        lock = files.lock(f"{directory}/{LOCK}")
    except KafkaStorageError:
        raise StoreLocked(directory) from None
    try:
        tree, snapshot_bytes = _recover_snapshot(files, directory)
        found = _read_both(files, f"{directory}/{LOG}", f"{directory}/{LOG_COPY}")
        good = recover_log(*found, tree, directory)
        log = _make_equal(files, f"{directory}/{LOG}", found[0], good)
        copy = _make_equal(files, f"{directory}/{LOG_COPY}", found[1], good)
        if None in found:
            files.sync_directory(directory)
    except BaseException:
        lock.release()
        raise
    return Journal(files, directory, lock, log, copy, len(good), snapshot_bytes), tree


def _recover_snapshot(files: Files, directory: str) -> tuple[Tree, int]:
    """Newest tree in the snapshot or its copy, and its size in bytes."""
    found = _read_both(files, f"{directory}/{SNAPSHOT}", f"{directory}/{SNAPSHOT_COPY}")
    written = [content for content in found if content is not None]
    if not written:
        return Tree(), 0
    readable = [(tree, content) for content in written if (tree := decode_snapshot(content)) is not None]
    if not readable:
        raise StoreDamaged(
            f"{directory}/{SNAPSHOT} and its copy are damaged. Restore {directory} from a backup, or"
            f" {_start_over(directory)}"
        )
    tree, content = max(readable, key=lambda each: each[0].zxid)
    if len(readable) < len(written):
        logger.warning(
            "%s/%s is repaired: one of its two copies was damaged; check the disk", directory, SNAPSHOT
        )
    if found != (content, content):
        _replace_snapshots(files, directory, content)
    return tree, len(content)


def _replace_snapshots(files: Files, directory: str, snapshot: bytes) -> None:
    for name in (SNAPSHOT_COPY, SNAPSHOT):
        files.replace(f"{directory}/{name}", snapshot)


def recover_log(log: bytes | None, copy: bytes | None, tree: Tree, directory: str) -> bytes:
    """Commit the records of the log to the tree; returns the content that both files should have."""
    first, second = memoryview(log or b""), memoryview(copy or b"")
    good: list[memoryview] = []
    position = repaired = 0
    while True:
        frame = _frame_at(first, position)
        if frame is None:
            frame = _frame_at(second, position)
            if frame is None:
                break
            repaired += 1
        _commit(frame, tree, position, directory)
        good.append(frame)
        position += len(frame)
    is_damaged = position < len(second) if copy is not None else _goes_on(first, position, tree)
    if is_damaged:
        raise _damaged(directory, position, max(len(first), len(second)))
    if repaired:
        logger.warning(
            "%s/%s is repaired from its copy: %d records; check the disk", directory, LOG, repaired
        )
    if position < len(first):
        logger.warning("cut %d bytes of an unfinished write from the coordination log", len(first) - position)
    return b"".join(good)


def _frame_at(view: memoryview, position: int) -> memoryview | None:
    payload = unframe(view, position)
    return None if payload is None else view[position : position + FRAME.size + len(payload)]


def _commit(frame: memoryview, tree: Tree, position: int, directory: str) -> None:
    payload = frame[FRAME.size :]
    if payload[0] != TRANSACTION_KIND:
        raise StoreDamaged(
            f"{directory}/{LOG} holds a record of kind {payload[0]} at byte {position}, which this version"
            " does not know. Start the version that wrote it"
        )
    transaction = decode_transaction(payload)
    if transaction.zxid > tree.zxid + 1:
        raise StoreDamaged(
            f"{directory}/{LOG} goes on with transaction {transaction.zxid}, but the snapshot ends with"
            f" {tree.zxid}: those between are missing. Restore {directory} from a backup, or"
            f" {_start_over(directory)}"
        )
    if transaction.zxid == tree.zxid + 1:
        tree.commit(transaction)


def _goes_on(view: memoryview, position: int, tree: Tree) -> bool:
    """Whether a whole, later record follows `position`."""
    for start in range(position + 1, len(view) - FRAME.size - LOG_HEAD.size + 1):
        at = start + FRAME.size
        is_later = view[at] == TRANSACTION_KIND and tree.zxid < LOG_HEAD.unpack_from(view, at)[1]
        if is_later and unframe(view, start) is not None:
            return True
    return False


def _damaged(directory: str, position: int, size: int) -> StoreDamaged:
    path = f"{directory}/{LOG}"
    return StoreDamaged(
        f"{path} and its copy are damaged at byte {position} of {size}: acknowledged changes of topics,"
        f" settings, users or producer ids would be lost. Restore {directory} from a backup; or cut it there"
        f" (truncate -s {position} {path} {path}.copy) if you can do without them;"
        f" or {_start_over(directory)}"
    )


def _start_over(directory: str) -> str:
    return (
        f"move {directory} away: topics are then adopted from the logs and nothing of them is deleted, and"
        " users, access rules and other settings are lost"
    )


def _make_equal(files: Files, path: str, found: bytes | None, good: bytes) -> DataFile:
    """Open the file, with the content `good` on disk."""
    file = files.open(path, create=True)
    found = found or b""
    if found != good:
        start = len(found) if good.startswith(found) else len(good) if found.startswith(good) else 0
        _write(file, start, good[start:])
        file.truncate(len(good))
        file.sync()
    return file


def _write(file: DataFile, position: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        written = file.write_at(position, left)
        position, left = position + written, left[written:]


def _read_both(files: Files, path: str, copy_path: str) -> tuple[bytes | None, bytes | None]:
    """Content of a file and its copy; None if missing, or unreadable while the other is readable."""
    found: list[bytes | None] = []
    errors: list[OSError] = []
    for each in (path, copy_path):
        try:
            found.append(files.read(each) if files.exists(each) else None)
        except OSError as error:
            logger.warning("%s cannot be read: %s", each, error)
            errors.append(error)
            found.append(None)
    if errors and found == [None, None]:
        raise errors[0]
    return found[0], found[1]
