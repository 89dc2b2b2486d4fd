"""Sessions that outlive the process of the store, kept as nodes of its own tree.

The sessions of a shared store belong to other processes, and survive a crash of the store. Each is a node
under `SESSIONS`, written before its owner learns the id. The node is deleted in one transaction with the
session's ephemeral nodes, so that no crash separates them. A session without its ephemeral nodes could still
lead partitions that another broker has taken over.

The id comes from the sequence number of the node, which is never given out twice. Its lowest bits are zero;
those of a session inside the store's own process are not.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from barnabas.cluster.coordination.contract import Create
from barnabas.cluster.embedded.tree import Tree

STORE_ROOT: Final = "/coordination"
"""Part of the tree that belongs to the store itself."""
SESSIONS: Final = f"{STORE_ROOT}/sessions"
_PREFIX: Final = f"{SESSIONS}/s"
_SHIFT: Final = 16


class DurableSession(NamedTuple):
    timeout_ms: int
    process: str
    """Name that a supervisor gave to the process of the session; empty for an unsupervised one."""


def create_session(session: DurableSession) -> Create:
    data = json.dumps({"timeout_ms": session.timeout_ms, "process": session.process})
    return Create(_PREFIX, data.encode(), sequential=True)


def session_id_of(path: str) -> int:
    """Id of the session at this path."""
    return int(path.removeprefix(_PREFIX)) + 1 << _SHIFT


def session_path(session_id: int) -> str | None:
    """Path of the session's node; None if the id is not of a durable session."""
    number, rest = divmod(session_id, 1 << _SHIFT)
    return f"{_PREFIX}{number - 1:010d}" if number > 0 and not rest else None


def read_sessions(tree: Tree) -> dict[int, DurableSession]:
    """Durable sessions in the tree, by id."""
    parent = tree.nodes.get(SESSIONS)
    found: dict[int, DurableSession] = {}
    for name in sorted(parent.children or ()) if parent is not None else ():
        path = f"{SESSIONS}/{name}"
        values = json.loads(tree.nodes[path].data)
        found[session_id_of(path)] = DurableSession(int(values["timeout_ms"]), str(values["process"]))
    return found


def is_of_the_store(path: str) -> bool:
    return path == STORE_ROOT or path.startswith(f"{STORE_ROOT}/")
