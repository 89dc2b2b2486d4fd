"""Znodes of the embedded store in memory, and the transactions that change them.

A change takes two steps, as in ZooKeeper. *Prepare* checks a request against the tree as it will be once all
prepared transactions are committed. It returns a `Transaction`: plain changes with every decision taken
(sequence numbers, owners). *Commit* applies a transaction without checks. Between the two the transaction is
written to disk, so no reader sees a change that a power cut could take back. Recovery commits the same
transactions again.

Prepared but uncommitted changes are kept as *shadows*: the few fields of a node that the checks need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.cluster.coordination.contract import (
    ANY_VERSION,
    BadArguments,
    BadVersion,
    Check,
    CoordinationError,
    Create,
    Delete,
    EventType,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SetData,
    Stat,
    WatchEvent,
    check_path,
    parent_of,
)


class Znode:
    __slots__ = (
        "children",
        "creates",
        "ctime_ms",
        "czxid",
        "data",
        "mtime_ms",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes, zxid: int, time_ms: int, owner: int) -> None:
        self.data = data
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime_ms = self.mtime_ms = time_ms
        self.version = 0
        self.creates = 0
        """Number of children ever created: the next sequence number."""
        self.owner = owner
        self.children: set[str] | None = None
        """None for a leaf: most nodes are leaves, and an empty set is not small."""

    @property
    def child_count(self) -> int:
        return len(self.children) if self.children else 0

    def adopt(self, name: str) -> None:
        if self.children is None:
            self.children = {name}
        else:
            self.children.add(name)

    def stat(self) -> Stat:
        children = self.child_count
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            # creations + deletions; a deletion is a creation whose child is gone
            2 * self.creates - children,
            self.owner,
            len(self.data),
            children,
            self.pzxid,
        )


class Created(NamedTuple):
    path: str
    data: bytes
    owner: int


class Changed(NamedTuple):
    path: str
    data: bytes


class Deleted(NamedTuple):
    path: str


Change = Created | Changed | Deleted


class Transaction(NamedTuple):
    zxid: int
    time_ms: int
    changes: Sequence[Change]
    results: Sequence[str | int | None] = ()
    """Per operation: the path of a create, the index into `changes` of a set, or None."""


def events_of(transaction: Transaction) -> Iterator[WatchEvent]:
    """Watch events of a transaction, in order."""
    for change in transaction.changes:
        path = change.path
        if isinstance(change, Changed):
            yield WatchEvent(EventType.CHANGED, path)
        else:
            kind = EventType.CREATED if isinstance(change, Created) else EventType.DELETED
            yield WatchEvent(kind, path)
            yield WatchEvent(EventType.CHILD, parent_of(path))


class Shadow:
    """Future state of a node. `exists` is False if its deletion is prepared."""

    __slots__ = ("children", "creates", "exists", "owner", "version", "zxid")

    def __init__(self, znode: Znode | None) -> None:
        self.exists = znode is not None
        self.version = znode.version if znode else 0
        self.creates = znode.creates if znode else 0
        self.children = znode.child_count if znode else 0
        self.owner = znode.owner if znode else 0
        self.zxid = 0

    def copy(self) -> Shadow:
        twin = Shadow(None)
        twin.exists, twin.version, twin.creates = self.exists, self.version, self.creates
        twin.children, twin.owner, twin.zxid = self.children, self.owner, self.zxid
        return twin


class Tree:
    """Committed nodes by path, and shadows of prepared changes."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {"/": Znode(b"", 0, 0, 0)}
        self.zxid = 0
        """Zxid of the last committed transaction."""
        self._prepared_zxid = 0
        self._shadows: dict[str, Shadow] = {}
        self._owned: dict[int, set[str]] = {}

    @classmethod
    def restored(cls, nodes: dict[str, Znode], zxid: int) -> Tree:
        """Tree of these nodes; the children follow from the paths."""
        tree = cls()
        tree.nodes = nodes
        tree.zxid = tree._prepared_zxid = zxid
        for path, znode in nodes.items():
            if path != "/":
                parent_path, _, name = path.rpartition("/")
                nodes[parent_path or "/"].adopt(name)
            if znode.owner:
                tree._owned.setdefault(znode.owner, set()).add(path)
        return tree

    def prepare(self, operations: Sequence[Operation], session_id: int, time_ms: int) -> Transaction:
        """Transaction for `operations`. Raises the error of the first operation that is invalid."""
        draft = _Draft(self.nodes, self._shadows, session_id)
        for index, operation in enumerate(operations):
            try:
                draft.add(operation)
            except CoordinationError as error:
                error.index = index
                raise
        if not draft.changes:
            return Transaction(self._prepared_zxid, time_ms, (), draft.results)
        self._prepared_zxid += 1
        for shadow in draft.shadows.values():
            shadow.zxid = self._prepared_zxid
        self._shadows.update(draft.shadows)
        return Transaction(self._prepared_zxid, time_ms, draft.changes, draft.results)

    def commit(self, transaction: Transaction) -> list[Result]:
        """Apply a prepared transaction without checks; returns the results of its operations."""
        if not transaction.changes:
            return [None] * len(transaction.results)
        stats: dict[int, Stat] = {}
        is_answered = bool(transaction.results)
        zxid = self.zxid = transaction.zxid
        self._prepared_zxid = max(self._prepared_zxid, zxid)
        for index, change in enumerate(transaction.changes):
            path = change.path
            if isinstance(change, Created):
                self._create(change, zxid, transaction.time_ms)
            elif isinstance(change, Changed):
                znode = self.nodes[path]
                znode.data, znode.mzxid, znode.mtime_ms = change.data, zxid, transaction.time_ms
                znode.version += 1
                if is_answered:
                    stats[index] = znode.stat()
            else:
                self._delete(path, zxid)
            if self._shadows:
                self._drop_shadow(path, zxid)
        return [stats[result] if isinstance(result, int) else result for result in transaction.results]

    def owned_by(self, session_id: int) -> list[str]:
        """Ephemeral nodes that the session will own."""
        owned = {path for path in self._owned.get(session_id, ()) if self._will_own(path, session_id)}
        owned.update(path for path in self._shadows if self._will_own(path, session_id))
        return sorted(owned)

    def will_exist(self, path: str) -> bool:
        shadow = self._shadows.get(path)
        return path in self.nodes if shadow is None else shadow.exists

    def owners(self) -> list[int]:
        return list(self._owned)

    def _will_own(self, path: str, session_id: int) -> bool:
        shadow = self._shadows.get(path) or Shadow(self.nodes.get(path))
        return shadow.exists and shadow.owner == session_id

    def _create(self, change: Created, zxid: int, time_ms: int) -> None:
        path = change.path
        self.nodes[path] = Znode(change.data, zxid, time_ms, change.owner)
        parent_path, _, name = path.rpartition("/")
        parent = self.nodes[parent_path or "/"]
        parent.adopt(name)
        parent.creates += 1
        parent.pzxid = zxid
        if self._shadows:
            self._drop_shadow(parent_path or "/", zxid)
        if change.owner:
            self._owned.setdefault(change.owner, set()).add(path)

    def _delete(self, path: str, zxid: int) -> None:
        znode = self.nodes.pop(path)
        parent_path, _, name = path.rpartition("/")
        parent = self.nodes[parent_path or "/"]
        assert parent.children is not None
        parent.children.remove(name)
        parent.pzxid = zxid
        self._drop_shadow(parent_path or "/", zxid)
        if znode.owner:
            owned = self._owned[znode.owner]
            owned.discard(path)
            if not owned:
                del self._owned[znode.owner]

    def _drop_shadow(self, path: str, zxid: int) -> None:
        shadow = self._shadows.get(path)
        if shadow is not None and shadow.zxid <= zxid:
            del self._shadows[path]


class _Draft:
    """One transaction in preparation.

    Its shadows stay private until every operation has passed. If one fails, the whole draft is dropped.
    """

    def __init__(self, nodes: dict[str, Znode], shadows: dict[str, Shadow], session_id: int) -> None:
        self._nodes = nodes
        self._prepared = shadows
        self._session_id = session_id
        self.shadows: dict[str, Shadow] = {}
        self.changes: list[Change] = []
        self.results: list[str | int | None] = []

    def add(self, operation: Operation) -> None:
        if isinstance(operation, Create):
            self._create(operation)
        elif isinstance(operation, SetData):
            self._expect(operation.path, operation.version)
            self._touch(operation.path).version += 1
            self.results.append(len(self.changes))
            self.changes.append(Changed(operation.path, operation.data))
        elif isinstance(operation, Delete):
            self._delete(operation)
        else:
            assert isinstance(operation, Check)
            self._expect(operation.path, operation.version)
            self.results.append(None)

    def _create(self, operation: Create) -> None:
        path = operation.path
        check_path(path, sequential=operation.sequential)
        parent = self._touch(parent_of(path))
        if not parent.exists:
            raise NoNode(path)
        if parent.owner:
            raise NoChildrenForEphemerals(path)
        if operation.sequential:
            path = f"{path}{parent.creates:010d}"
        if self._exists(path):
            raise NodeExists(path)
        node = self.shadows[path] = Shadow(None)
        node.exists = True
        if operation.ephemeral:
            node.owner = self._session_id
        parent.creates += 1
        parent.children += 1
        self.results.append(path)
        self.changes.append(Created(path, operation.data, node.owner))

    def _delete(self, operation: Delete) -> None:
        path = operation.path
        if path == "/":
            raise BadArguments(path)
        self._expect(path, operation.version)
        if self._look(path).children:
            raise NotEmpty(path)
        self._touch(path).exists = False
        self._touch(parent_of(path)).children -= 1
        self.results.append(None)
        self.changes.append(Deleted(path))

    def _expect(self, path: str, version: int) -> None:
        check_path(path)
        node = self._look(path)
        if not node.exists:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)

    def _exists(self, path: str) -> bool:
        shadow = self.shadows.get(path) or self._prepared.get(path)
        return path in self._nodes if shadow is None else shadow.exists

    def _look(self, path: str) -> Shadow:
        """Future state of the node, for reading."""
        return self.shadows.get(path) or self._prepared.get(path) or Shadow(self._nodes.get(path))

    def _touch(self, path: str) -> Shadow:
        """Future state of the node, for changing: this transaction will commit a change to it."""
        found = self.shadows.get(path)
        if found is None:
            prepared = self._prepared.get(path)
            found = prepared.copy() if prepared is not None else Shadow(self._nodes.get(path))
            self.shadows[path] = found
        return found
