"""Every broker key, in the sections of the page.

The names, types, defaults and checks are those of Apache Kafka 3.9 in ZooKeeper mode; a row says where its
default differs. `SECTIONS` is the order of `docs/CONFIG.md`.
"""

from __future__ import annotations

from itertools import chain

from barnabas.config.definitions import coordinators, logs, replication, security, server, sockets
from barnabas.config.definitions.keys import BrokerDefinition, Key

SECTIONS: tuple[tuple[str, tuple[Key, ...]], ...] = (
    ("The broker", server.IDENTITY),
    ("Listeners", sockets.LISTENERS),
    ("Log directories", logs.DIRECTORIES),
    ("Topics", server.TOPICS),
    ("Sockets", sockets.SOCKETS),
    ("Connections", sockets.CONNECTIONS),
    ("Requests", server.REQUESTS),
    ("Messages", logs.MESSAGES),
    ("Segments", logs.SEGMENTS),
    ("Retention", logs.RETENTION),
    ("Flushing", logs.FLUSHING),
    ("Compaction", logs.CLEANER),
    ("Replication", replication.REPLICATION),
    ("Leaders", replication.LEADERS),
    ("Stopping", server.SHUTDOWN),
    ("ZooKeeper", replication.ZOOKEEPER),
    ("Groups", coordinators.GROUPS),
    ("Committed offsets", coordinators.OFFSETS),
    ("Transactions", coordinators.TRANSACTIONS),
    ("Quotas", coordinators.QUOTAS),
    ("Authorization", security.AUTHORIZATION),
    ("TLS", security.TLS),
    ("SASL", security.SASL),
    ("Tokens and secrets", security.TOKENS),
    ("The metrics page", security.HTTP),
    ("Metrics", server.METRICS),
)

BROKER_KEYS = BrokerDefinition(chain.from_iterable(rows for _, rows in SECTIONS))
