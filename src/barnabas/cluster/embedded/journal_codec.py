"""Transactions and snapshots of the embedded store as bytes.

frame    = length u32, crc32 u32, payload        (length > 0: a zero-filled tail is not a record)
log      = frame*        payload = kind u8, zxid u64, time u64, count u32, change*
snapshot = frame         payload = kind u8, zxid u64, count u32, node*
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from barnabas.cluster.embedded.tree import Change, Changed, Created, Deleted, Transaction, Tree, Znode

FRAME = struct.Struct(">II")
LOG_HEAD = struct.Struct(">BQQI")
_SNAPSHOT_HEAD = struct.Struct(">BQI")
_CREATED = struct.Struct(">BIIQ")
_CHANGED = struct.Struct(">BII")
_DELETED = struct.Struct(">BI")
_NODE = struct.Struct(">IIQQQQQIQQ")

TRANSACTION_KIND = 1
_SNAPSHOT_KIND = 2
_CREATED_TAG = 1
_CHANGED_TAG = 2
_DELETED_TAG = 3


def encode_transaction(transaction: Transaction) -> bytes:
    parts: list[bytes] = [
        LOG_HEAD.pack(TRANSACTION_KIND, transaction.zxid, transaction.time_ms, len(transaction.changes))
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
    _, zxid, time_ms, count = LOG_HEAD.unpack_from(payload)
    position = LOG_HEAD.size
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


def decode_snapshot(data: bytes) -> Tree | None:
    """Tree of a snapshot; None if the bytes are damaged."""
    payload = unframe(memoryview(data), 0)
    if payload is None or payload[0] != _SNAPSHOT_KIND:
        return None
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
    return FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def unframe(view: memoryview, position: int) -> memoryview | None:
    """Payload of the frame at `position`, or None if no whole frame is there."""
    start = position + FRAME.size
    if start > len(view):
        return None
    length, crc = FRAME.unpack_from(view, position)
    payload = view[start : start + length]
    if length == 0 or len(payload) < length or zlib.crc32(payload) != crc:
        return None
    return payload
