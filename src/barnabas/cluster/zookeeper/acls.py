"""Who may do what to a znode, by Kafka's rule.

An insecure cluster lets everybody do everything. In a secure one (`zookeeper.set.acl`) a node belongs to the
credentials that made it, and all the world may read it, unless it holds secrets: SCRAM credentials, brokers'
dynamic settings (with encrypted passwords), delegation tokens, and what tells unknown users from known ones.
`/consumers` itself stays open to all, for old consumers make their own nodes below it.

Who may delete a node is said by its parent, so the root of the tree has to be owned as well. Apache Kafka
leaves that to a tool (zookeeper-security-migration); here a broker sees to it for its chroot, and whoever
runs a ZooKeeper for this cluster alone for `/`.
"""

from __future__ import annotations

from enum import Enum

OPEN_PATH = "/consumers"
SENSITIVE_ROOTS = ("/config/users", "/config/brokers", "/delegation_token/tokens", "/barnabas/decoy_secret")


class Access(Enum):
    OPEN = "open"
    OWNED = "owned"
    """The creator's alone to change; readable by all."""
    PRIVATE = "private"
    """The creator's alone."""


def access_to(path: str, *, is_secure: bool) -> Access:
    if not is_secure or path == OPEN_PATH:
        return Access.OPEN
    return Access.PRIVATE if path.startswith(SENSITIVE_ROOTS) else Access.OWNED
