"""ZooKeeper coordination store, through kazoo, which nothing else imports.

- `wire`: kazoo and its thread.
- `session`: the session on the event loop, with its requests `in_flight`.
- `acls`: ACLs of znodes.
- `digest_md5`: SASL login.
"""

from __future__ import annotations

from barnabas.cluster.zookeeper.digest_md5 import DigestLogin
from barnabas.cluster.zookeeper.session import ZooKeeperSession, open_zookeeper
from barnabas.cluster.zookeeper.wire import ServerAccess

__all__ = ["DigestLogin", "ServerAccess", "ZooKeeperSession", "open_zookeeper"]
