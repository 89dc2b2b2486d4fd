"""The coordination store of a cluster: ZooKeeper, through kazoo, which nothing else imports.

`wire` is kazoo and its thread, `session` what the loop sees of it, with what is `in_flight` and the `lease`;
`acls` says who may read and write what, `digest_md5` logs in.
"""

from __future__ import annotations

from barnabas.cluster.zookeeper.digest_md5 import DigestLogin
from barnabas.cluster.zookeeper.session import ZooKeeperSession, open_zookeeper
from barnabas.cluster.zookeeper.wire import ServerAccess

__all__ = ["DigestLogin", "ServerAccess", "ZooKeeperSession", "open_zookeeper"]
