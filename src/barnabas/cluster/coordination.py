"""What the broker asks of a coordination store, with ZooKeeper's semantics.

A tree of znodes. Each has data and a version that starts at 0 and grows by one per `set`; conditional
writes name the version they expect (-1: any). A node may be *ephemeral*: it belongs to the session that
made it, has no children and dies with that session. A node may be *sequential*: its name ends in ten
digits that count the creations under its parent, so that later ones sort later. `multi` applies several
operations or none.

A *watch* is a callback that fires once, after the change and in the order of changes, on the loop's
thread. A data watch (`get`, `exists`) fires on CREATED, CHANGED and DELETED of its node; a child watch
(`children`) fires on CHILD (one came or went) and DELETED. `exists` leaves its watch on a missing node
too; `get` and `children` of a missing node raise and leave none.

Operations of one session take effect in the order in which they were started. A session is CONNECTED,
SUSPENDED (the store may be gone; an operation in flight fails with `ConnectionLoss`, which leaves open
whether it happened), LOST (the session is over: its ephemeral nodes and watches are gone), or CLOSED by
its owner. After LOST the implementation may start another session: it then reports CONNECTED with another
`session_id`, and who registered something registers again.

The *lease* is what a leader may rely on: until `lease_expires_ms` the store has certainly not ended the
session, so nobody else has been given its place. It is counted from the moment when the last heartbeat that
was answered had been *sent*, so it needs no agreement of clocks, and a process that was stopped finds it
expired when it continues, before it has heard anything of the store.

Two implementations pass one contract suite: `embedded` and ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from barnabas.config.connect_string import ZNODE_PATH

ANY_VERSION = -1

DATA_BYTES_MAX = 1_000_000
"""What one node, or one `multi` with all its nodes, may hold. ZooKeeper cuts the connection of whoever
sends a request of a mebibyte, so what comes near is refused before."""


class CoordinationError(Exception):
    """The root; `index` is the place of the failed operation when it was part of a `multi`."""

    index: int | None = None

    def __init__(self, path: str = "") -> None:
        super().__init__(path)
        self.path = path


class NoNode(CoordinationError): ...


class NodeExists(CoordinationError): ...


class BadVersion(CoordinationError): ...


class NotEmpty(CoordinationError):
    """The node has children, so it cannot be deleted."""


class NoChildrenForEphemerals(CoordinationError): ...


class BadArguments(CoordinationError):
    """The path is not one, or the operation makes no sense for it."""


class DataTooLarge(CoordinationError):
    """More than DATA_BYTES_MAX; nothing was sent."""


class NoAuth(CoordinationError):
    """The node's access control list does not let this session do that."""


class SessionExpired(CoordinationError): ...


class SessionClosed(CoordinationError):
    """The owner closed the session before this operation."""


class ConnectionLoss(CoordinationError):
    """No answer came. The operation may or may not have taken effect."""


class StoreFailed(CoordinationError):
    """The store cannot write any more; nothing that follows is accepted."""


class StoreLocked(CoordinationError):
    """Another process has the store open."""


class EventType(Enum):
    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILD = "child"


class WatchEvent(NamedTuple):
    type: EventType
    path: str


Watch = Callable[[WatchEvent], None]


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"


StateListener = Callable[[SessionState], None]


class Stat(NamedTuple):
    """What the store knows about a node; names and meanings are ZooKeeper's."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """The node exists and has this version; changes nothing."""

    path: str
    version: int = ANY_VERSION


Operation = Create | SetData | Delete | Check

Result = str | Stat | None
"""Of one operation in a `multi`: Create gives the path, SetData the Stat, the others None."""


class Coordination(Protocol):
    """One session with the store."""

    @property
    def session_id(self) -> int: ...

    @property
    def session_timeout_ms(self) -> int:
        """How long the store waits for a silent session before it ends it."""
        ...

    @property
    def state(self) -> SessionState: ...

    @property
    def lease_expires_ms(self) -> float:
        """On the monotonic clock: until then the session certainly lives. In the past once it may be over."""
        ...

    def add_listener(self, listener: StateListener) -> None:
        """Call `listener` with every later change of `state`."""
        ...

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """The path of the node made, which differs from `path` if it is sequential."""
        ...

    async def make_paths(self, paths: Iterable[str]) -> None:
        """Make those of these nodes, and of their parents, that do not exist; asked for all at once."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]: ...

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """The data of many nodes, None for those that do not exist; asked for all at once."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat: ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None: ...

    async def watch_many(self, watches: Mapping[str, Watch]) -> None:
        """Leave a data watch on many nodes, as `exists` does; asked for all at once."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names, not paths, sorted."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """All or nothing; otherwise raises the error of the first operation that failed, with its `index`."""
        ...

    async def close(self) -> None:
        """End the session; its ephemeral nodes die now."""
        ...


def check_path(path: str, *, sequential: bool = False) -> None:
    """Raise BadArguments unless `path` may name a node."""
    if sequential:
        path += "0"
    if not ZNODE_PATH.fullmatch(path) and path != "/":
        raise BadArguments(path)


def check_data(operations: Sequence[Operation]) -> None:
    """Raise DataTooLarge if they do not fit into one request."""
    total = 0
    for index, operation in enumerate(operations):
        if isinstance(operation, Create | SetData):
            total += len(operation.data)
            if total > DATA_BYTES_MAX:
                error = DataTooLarge(f"{operation.path}: {total} bytes, the limit is {DATA_BYTES_MAX}")
                error.index = index
                raise error


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"
