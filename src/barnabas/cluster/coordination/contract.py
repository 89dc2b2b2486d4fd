"""Coordination interface of the broker, with ZooKeeper's semantics.

The store is a tree of znodes. Each znode has data and a version that starts at 0 and grows by one per `set`.
Conditional writes name the version they expect (-1: any). An *ephemeral* node belongs to the session that
created it, has no children and dies with that session. The name of a *sequential* node ends in ten digits
that count the creations under its parent, so later names sort later. `multi` applies all of its operations or
none.

A *watch* is a callback that fires once, after the change and in the order of changes, on the loop's thread. A
data watch (`get`, `exists`) fires on CREATED, CHANGED and DELETED of its node. A child watch (`children`)
fires on CHILD (a child was created or deleted) and DELETED. `exists` also leaves its watch on a missing node;
`get` and `children` of a missing node raise and leave none.

Operations of one session take effect in the order in which they were started. The states of a session:

- CONNECTED.
- SUSPENDED: the store may be unreachable. An operation in flight fails with `ConnectionLoss`, which leaves
  open whether it took effect.
- LOST: the session is over, and so are its ephemeral nodes and watches.
- CLOSED: its owner closed it.

After LOST the implementation may start another session. It then reports CONNECTED with another `session_id`,
and each user creates its ephemeral nodes and watches again.

A leader relies on the *lease*: until `lease_expires_ms` the store has certainly not ended the session, so no
other broker has taken over. The lease is counted from the moment when the last answered heartbeat was *sent*,
so it needs no agreement of clocks. A process that was stopped finds its lease expired when it continues,
before it has received anything from the store.

Three implementations pass one contract suite: `embedded`, `shared` and ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from barnabas.config.connect_string import ZNODE_PATH

ANY_VERSION = -1

OPERATION_RETRY_MS: Final = 100
"""Pause before one operation is repeated after a lost connection."""

RECOVERY_RETRY_MS: Final = 1_000
"""Pause before a registration, or the read of a whole copy, is attempted again."""

DATA_BYTES_MAX = 1_000_000
"""Largest data of one node, or of one `multi` with all its nodes.

ZooKeeper closes the connection on a request of one mebibyte, so larger data is refused before.
"""


class CoordinationError(Exception):
    """Base error; `index` is the position of the failed operation in a `multi`."""

    index: int | None = None

    def __init__(self, path: str = "") -> None:
        super().__init__(path)
        self.path = path


class NoNode(CoordinationError): ...


class NodeExists(CoordinationError): ...


class BadVersion(CoordinationError): ...


class NotEmpty(CoordinationError):
    """The node has children and cannot be deleted."""


class NoChildrenForEphemerals(CoordinationError): ...


class BadArguments(CoordinationError):
    """The path is invalid, or the operation is invalid for it."""


class DataTooLarge(CoordinationError):
    """The data exceeds DATA_BYTES_MAX; nothing was sent."""


class NoAuth(CoordinationError):
    """The node's access control list forbids the operation to this session."""


class SessionExpired(CoordinationError): ...


class SessionClosed(CoordinationError):
    """The owner closed the session before this operation."""


class ConnectionLoss(CoordinationError):
    """No response arrived. The operation may or may not have taken effect."""


class StoreFailed(CoordinationError):
    """The store cannot write any more and accepts no further operation."""


class StoreDamaged(CoordinationError):
    """The store's files are damaged, and continuing would lose acknowledged changes."""


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
    """Metadata of a node, with ZooKeeper's names and meanings."""

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
    """Checks that the node exists and has this version; changes nothing."""

    path: str
    version: int = ANY_VERSION


Operation = Create | SetData | Delete | Check

Result = str | Stat | None
"""Result of one operation in a `multi`: Create gives the path, SetData the Stat, the others None."""


class Coordination(Protocol):
    """One session with the store."""

    @property
    def session_id(self) -> int: ...

    @property
    def session_timeout_ms(self) -> int:
        """Time after which the store ends a silent session."""
        ...

    @property
    def state(self) -> SessionState: ...

    @property
    def lease_expires_ms(self) -> float:
        """Time on the monotonic clock until which the session certainly lives; in the past once it may be
        over.
        """
        ...

    @property
    def failure(self) -> BaseException | None:
        """Reason why no session follows a LOST one: the embedded store cannot write."""
        return None

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
        """Create a node; returns its path, which differs from `path` if the node is sequential."""
        ...

    async def make_paths(self, paths: Iterable[str]) -> None:
        """Create the missing ones of these nodes and of their parents, in pipelined requests."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]: ...

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Data of many nodes, None for missing ones, in pipelined requests."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat: ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None: ...

    async def watch_many(self, watches: Mapping[str, Watch]) -> None:
        """Leave a data watch on many nodes, as `exists` does, in pipelined requests."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Sorted names (not paths) of the children."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Apply all operations or none. Raises the first operation's error, with its `index`."""
        ...

    async def close(self) -> None:
        """End the session; its ephemeral nodes die now."""
        ...


def check_path(path: str, *, sequential: bool = False) -> None:
    """Raise BadArguments unless `path` is a valid znode path."""
    if sequential:
        path += "0"
    if not ZNODE_PATH.fullmatch(path) and path != "/":
        raise BadArguments(path)


def check_data(operations: Sequence[Operation]) -> None:
    """Raise DataTooLarge if the operations do not fit into one request."""
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


async def children_if_any(znodes: Coordination, path: str) -> list[str]:
    """Names of the children; none if the node does not exist."""
    try:
        return await znodes.children(path)
    except NoNode:
        return []
