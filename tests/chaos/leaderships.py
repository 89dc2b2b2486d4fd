"""Leader of every epoch of a partition, read from ZooKeeper's transaction log.

An epoch of which no record survives leaves no trace on the brokers: a follower cuts it out of its log and of
`leader-epoch-checkpoint`. ZooKeeper logs every state of a partition before a broker can act on it, so its log
names the leader of each epoch, and the epochs that had none. A server that starts purges its oldest logs:
they have to be read after each fault.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

NO_LEADER = -1

_STATE = re.compile(rb"/brokers/topics/([\w.-]+)/partitions/(\d+)/state.{4}(\{[^}]*\})", re.DOTALL)
"""Path, length and JSON, next to each other in a creation and in a change, alone or in a multi. A check of a
version and a transaction that failed hold no data."""

Leaders = dict[tuple[str, int], dict[int, int]]


def leaders_by_epoch(directory: Path, topics: Collection[str]) -> Leaders:
    """Topic and partition to epoch to leader, from the logs that the server in `directory` still has."""
    found: defaultdict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for log in directory.glob("version-2/log.*"):
        for name, partition, data in _STATE.findall(log.read_bytes()):
            if (topic := name.decode()) in topics:
                state = json.loads(data)
                found[topic, int(partition)][state["leader_epoch"]] = state["leader"]
    return dict(found)


def merge(into: Leaders, more: Leaders) -> None:
    for place, leaders in more.items():
        into.setdefault(place, {}).update(leaders)
