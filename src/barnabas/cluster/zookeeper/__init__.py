"""The coordination store of a cluster: ZooKeeper, through kazoo, which nothing else imports.

`wire` is kazoo and its thread, `session` what the loop sees of it, with what is `in_flight` and the `lease`;
`acls` says who may read and write what.
"""

from __future__ import annotations

from barnabas.cluster.zookeeper.session import ZooKeeperSession, open_zookeeper

__all__ = ["ZooKeeperSession", "open_zookeeper"]
