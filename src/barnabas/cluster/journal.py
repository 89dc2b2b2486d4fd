"""The embedded store on disk: a snapshot of the tree, and a log of the transactions since.

Both are framed by length and CRC. Opening loads the snapshot and then commits the log's records, one
after another, for as long as they are whole and their zxids follow on; the rest is a write that a crash
tore (never acknowledged, since acknowledging waits for fsync) and is cut off. So whatever moment a crash
picks, opening finds a prefix of the transactions that holds every acknowledged one.

Compaction writes the snapshot beside the old one, syncs it, renames it over the old one, syncs the
directory, and only then empties the log. A crash in between leaves records in the log that the snapshot
already holds; their zxids say so.

    frame    = length u32, crc32 u32, payload        (length > 0: a zero-filled tail is not a record)
    log      = frame*        payload = kind u8, zxid u64, time u64, count u32, change*
    snapshot = frame         payload = kind u8, zxid u64, count u32, node*
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Iterable

from barnabas.cluster.coordination import StoreLocked
from barnabas.cluster.tree import Change, Changed, Created, Deleted, Transaction, Tree, Znode
from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import DataFile, Files, Held

logger = logging.getLogger(__name__)

LOG = "log"
SNAPSHOT = "snapshot"
LOCK = ".lock"

_FRAME = struct.Struct(">II")
_LOG_HEAD = struct.Struct(">BQQI")
_SNAPSHOT_HEAD = struct.Struct(">BQI")
_CREATED = struct.Struct(">BIIQ")
_CHANGED = struct.Struct(">BII")
_DELETED = struct.Struct(">BI")
_NODE = struct.Struct(">IIQQQQQIQQ")

_TRANSACTION_KIND = 1
_SNAPSHOT_KIND = 2
_CREATED_TAG = 1
_CHANGED_TAG = 2
_DELETED_TAG = 3


class CorruptSnapshot(Exception):
    """The snapshot was synced before it got its name, so this is a damaged disk and not a crash."""


class Journal:
    """The open files. `append` and `compact` block and may run off the loop, one at a time."""

    def __init__(
        self, files: Files, directory: str, lock: Held, log: DataFile, log_bytes: int, snapshot_bytes: int
    ) -> None:
        self._files = files
        self._directory = directory
        self._lock = lock
        self._log = log
        self.log_bytes = log_bytes
        self.snapshot_bytes = snapshot_bytes

    def append(self, frames: bytes) -> None:
        position, left = self.log_bytes, memoryview(frames)
        while left:
            written = self._log.write_at(position, left)
            position, left = position + written, left[written:]
        self._log.sync()
        self.log_bytes = position

    def compact(self, snapshot: bytes) -> None:
        """Replace everything by `snapshot`, which holds every transaction appended."""
        self._files.replace(f"{self._directory}/{SNAPSHOT}", snapshot)
        self._log.truncate(0)
        self._log.sync()
        self.log_bytes = 0
        self.snapshot_bytes = len(snapshot)

    def close(self) -> None:
        del self._log  # it closes with its last reference, and a store that stopped may be held
        self._lock.release()


def open_journal(files: Files, directory: str) -> tuple[Journal, Tree]:
    """Lock the directory, which is made if missing, recover the tree, cut a torn tail."""
    files.make_lasting_directory(directory)
    try:
        lock = files.lock(f"{directory}/{LOCK}")
    except KafkaStorageError:
        raise StoreLocked(directory) from None
    try:
        snapshot = _read(files, f"{directory}/{SNAPSHOT}")
        tree = Tree() if snapshot is None else decode_snapshot(snapshot)
        data = _read(files, f"{directory}/{LOG}")
        whole = 0 if data is None else replay(data, tree)
        log = files.open(f"{directory}/{LOG}", create=True)
        if data is None:
            files.sync_directory(directory)
        elif whole < len(data):
            logger.warning("cut %d bytes of an unfinished write from the coordination log", len(data) - whole)
            log.truncate(whole)
            log.sync()
    except BaseException:
        lock.release()
        raise
    return Journal(files, directory, lock, log, whole, len(snapshot or b"")), tree


def _read(files: Files, path: str) -> bytes | None:
    return files.read(path) if files.exists(path) else None


def replay(data: bytes, tree: Tree) -> int:
    """Commit the whole records of a log; returns the length of the part that is good."""
    position = 0
    view = memoryview(data)
    while True:
        payload = _unframe(view, position)
        if payload is None or payload[0] != _TRANSACTION_KIND:
            return position
        transaction = decode_transaction(payload)
        if transaction.zxid > tree.zxid + 1:
            return position
        if transaction.zxid == tree.zxid + 1:
            tree.commit(transaction)
        position += _FRAME.size + len(payload)


def encode_transaction(transaction: Transaction) -> bytes:
    parts: list[bytes] = [
        _LOG_HEAD.pack(_TRANSACTION_KIND, transaction.zxid, transaction.time_ms, len(transaction.changes))
    ]
    for change in transaction.changes:
        path = change.path.encode()
        if isinstance(change, Created):
            parts += (
                _CREATED.pack(_CREATED_TAG, len(path), len(change.data), change.owner),
                path,
                change.data,
            )
        elif isinstance(change, Changed):
            parts += (_CHANGED.pack(_CHANGED_TAG, len(path), len(change.data)), path, change.data)
        else:
            parts += (_DELETED.pack(_DELETED_TAG, len(path)), path)
    return _frame(parts)


def decode_transaction(payload: memoryview) -> Transaction:
    _, zxid, time_ms, count = _LOG_HEAD.unpack_from(payload)
    position = _LOG_HEAD.size
    changes: list[Change] = []
    for _ in range(count):
        change, position = _decode_change(payload, position)
        changes.append(change)
    return Transaction(zxid, time_ms, changes)


def _decode_change(payload: memoryview, position: int) -> tuple[Change, int]:
    tag = payload[position]
    if tag == _CREATED_TAG:
        _, path_length, data_length, owner = _CREATED.unpack_from(payload, position)
        path, data, position = _two(payload, position + _CREATED.size, path_length, data_length)
        return Created(path, data, owner), position
    if tag == _CHANGED_TAG:
        _, path_length, data_length = _CHANGED.unpack_from(payload, position)
        path, data, position = _two(payload, position + _CHANGED.size, path_length, data_length)
        return Changed(path, data), position
    assert tag == _DELETED_TAG
    _, path_length = _DELETED.unpack_from(payload, position)
    path, _, position = _two(payload, position + _DELETED.size, path_length, 0)
    return Deleted(path), position


def encode_snapshot(tree: Tree) -> bytes:
    parts: list[bytes] = [_SNAPSHOT_HEAD.pack(_SNAPSHOT_KIND, tree.zxid, len(tree.nodes))]
    for name, node in tree.nodes.items():
        path = name.encode()
        figures = (node.czxid, node.mzxid, node.pzxid, node.ctime_ms, node.mtime_ms, node.version)
        parts += (
            _NODE.pack(len(path), len(node.data), *figures, node.creates, node.owner),
            path,
            node.data,
        )
    return _frame(parts)


def decode_snapshot(data: bytes) -> Tree:
    payload = _unframe(memoryview(data), 0)
    if payload is None or payload[0] != _SNAPSHOT_KIND:
        raise CorruptSnapshot("the coordination snapshot is damaged")
    _, zxid, count = _SNAPSHOT_HEAD.unpack_from(payload)
    position = _SNAPSHOT_HEAD.size
    nodes: dict[str, Znode] = {}
    for _ in range(count):
        path_length, data_length, *figures = _NODE.unpack_from(payload, position)
        path, content, position = _two(payload, position + _NODE.size, path_length, data_length)
        node = nodes[path] = Znode(content, 0, 0, 0)
        node.czxid, node.mzxid, node.pzxid, node.ctime_ms, node.mtime_ms = figures[:5]
        node.version, node.creates, node.owner = figures[5:]
    return Tree.restored(nodes, zxid)


def _two(payload: memoryview, position: int, path_length: int, data_length: int) -> tuple[str, bytes, int]:
    middle = position + path_length
    end = middle + data_length
    return str(payload[position:middle], "utf-8"), bytes(payload[middle:end]), end


def _frame(parts: Iterable[bytes]) -> bytes:
    payload = b"".join(parts)
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def _unframe(view: memoryview, position: int) -> memoryview | None:
    """The payload at `position`, or None if no whole frame is there."""
    start = position + _FRAME.size
    if start > len(view):
        return None
    length, crc = _FRAME.unpack_from(view, position)
    payload = view[start : start + length]
    if length == 0 or len(payload) < length or zlib.crc32(payload) != crc:
        return None
    return payload
