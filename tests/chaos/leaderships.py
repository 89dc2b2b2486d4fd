"""Leader of every epoch of a partition, read from the transaction log of the coordination store.

An epoch of which no record survives leaves no trace on the brokers: a follower cuts it out of its log and of
`leader-epoch-checkpoint`. The store logs every state of a partition before a broker can act on it, so its log
names the leader of each epoch, and the epochs that had none. ZooKeeper purges its oldest logs when it starts,
and the shared store empties its log into a snapshot: they have to be read after each fault.
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

_SHARED_STATE = re.compile(rb"/brokers/topics/([\w.-]+)/partitions/(\d+)/state(\{[^}]*\})")
"""Path and JSON, next to each other in the log and in the snapshot of the shared store."""

Leaders = dict[tuple[str, int], dict[int, int]]


def leaders_by_epoch(directory: Path, topics: Collection[str]) -> Leaders:
    """Topic and partition to epoch to leader, from the logs that the server in `directory` still has."""
    found: defaultdict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    logs = [(_STATE, log) for log in directory.glob("version-2/log.*")]
    logs += [(_SHARED_STATE, log) for name in ("snapshot", "log") for log in directory.glob(name)]
    for pattern, log in logs:
        for name, partition, data in pattern.findall(log.read_bytes()):
            if (topic := name.decode()) in topics:
                state = json.loads(data)
                found[topic, int(partition)][state["leader_epoch"]] = state["leader"]
    return dict(found)


def merge(into: Leaders, more: Leaders) -> None:
    for place, leaders in more.items():
        into.setdefault(place, {}).update(leaders)
