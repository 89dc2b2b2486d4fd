"""ZooKeeper ACLs of znodes, by Kafka's rules.

An insecure cluster gives all rights to all clients. In a secure one (`zookeeper.set.acl`) a node belongs to
the credentials that created it, and is world-readable unless it holds secrets. Secrets are SCRAM credentials,
brokers' dynamic settings (with encrypted passwords), delegation tokens and the decoy secret. `/consumers`
itself stays open, because old consumers create their own nodes below it.

The parent of a node decides which clients may delete it, so the root of the tree needs an owner too. Apache
Kafka leaves that to a tool (zookeeper-security-migration). Here a broker owns its chroot. If the ensemble
serves this cluster alone, the broker also owns `/`.
"""

from __future__ import annotations

from enum import Enum

OPEN_PATH = "/consumers"
SENSITIVE_ROOTS = ("/config/users", "/config/brokers", "/delegation_token/tokens", "/barnabas/decoy_secret")


class Access(Enum):
    OPEN = "open"
    OWNED = "owned"
    """Only the creator may change it; world-readable."""
    PRIVATE = "private"
    """Only the creator may read or change it."""


def access_to(path: str, *, is_secure: bool) -> Access:
    if not is_secure or path == OPEN_PATH:
        return Access.OPEN
    return Access.PRIVATE if path.startswith(SENSITIVE_ROOTS) else Access.OWNED
