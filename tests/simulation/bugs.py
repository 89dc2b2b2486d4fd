"""Bugs that are planted to see whether the simulator finds them: the mistakes that engineers make in brokers.

Each is one small change to one module of the product, applied to its text while it is imported, in a process
of its own; nothing on the disk changes. `python -m tests.simulation.bugs` plants them one after the other,
and says after how many seeds each was caught.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple


class Bug(NamedTuple):
    name: str
    module: str
    before: str
    after: str


BUGS = (
    Bug(
        "the high watermark is one too high",
        "barnabas.replication.leader.followers",
        "            end_offset = follower.end_offset\n    return end_offset",
        "            end_offset = follower.end_offset + 1\n    return end_offset",
    ),
    Bug(
        "the high watermark waits for nobody",
        "barnabas.replication.leader.followers",
        "            end_offset = follower.end_offset\n    return end_offset",
        "            pass\n    return end_offset",
    ),
    Bug(
        "a write is acknowledged before it is replicated",
        "barnabas.replication.leader.delayed_produce",
        "elif partition.is_acknowledged(ack.end_offset, self._required_acks):",
        "elif True:",
    ),
    Bug(
        "a lease never ends",
        "barnabas.replication.leader.lease",
        "            and self._now_ms() < self._expires_ms()\n",
        "",
    ),
    Bug(
        "an election does not raise the epoch",
        "barnabas.controller.leader_selection",
        "return state._replace(leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1)\n\n\ndef _first",
        "return state._replace(leader=leader, isr=isr, leader_epoch=state.leader_epoch)\n\n\ndef _first",
    ),
    Bug(
        "a follower does not cut off what its leader does not have",
        "barnabas.replication.follower.truncation",
        "return min(end_offset, leader.end_offset, log_end_offset)",
        "return log_end_offset",
    ),
    Bug(
        "a follower takes records of a former epoch",
        "barnabas.replication.partition",
        "if leadership.leader_epoch != leader_epoch or leadership.is_leader:",
        "if leadership.is_leader:",
    ),
    Bug(
        "a follower joins the ISR before it has caught up",
        "barnabas.replication.partition",
        "            and follower.end_offset >= self.log.high_watermark\n"
        "            and follower.end_offset >= self.leader_epoch_start_offset\n",
        "",
    ),
    Bug(
        "a batch that is sent again is written again",
        "barnabas.storage.producers.append_checks",
        "        duplicate = entry.find_duplicate(batch)\n        if duplicate is not None:\n"
        "            return duplicate",
        "        return None",
    ),
    Bug(
        "elections are unclean",
        "barnabas.controller.leader_selection",
        "    if unclean:\n",
        "    if True:\n",
    ),
    Bug(
        "the last stable offset is the high watermark",
        "barnabas.storage.log.watermarks",
        "return min(max(first_unstable_offset, self.log_start_offset), self.high_watermark)",
        "return self.high_watermark",
    ),
    Bug(
        "markers for other brokers always say commit",
        "barnabas.coordinator.transaction.cluster_markers",
        "transaction_result=marker.is_commit,",
        "transaction_result=True,",
    ),
    Bug(
        "a marker that could not be sent is taken for written",
        "barnabas.coordinator.transaction.cluster_markers",
        "finish(dict.fromkeys(partitions, error))",
        "finish({})",
    ),
    Bug(
        "a broker with a new session does not register again",
        "barnabas.node.cluster_member",
        "            self._tasks.start(self._return())\n",
        "",
    ),
    Bug(
        "watches of children are lost",
        "barnabas.cluster.zookeeper.session",
        "            self._watches.fire((WatchEvent(kind, own),))",
        "            if kind is not EventType.CHILD:\n"
        "                self._watches.fire((WatchEvent(kind, own),))",
    ),
    Bug(
        "a controller that takes over does not see who came back",
        "barnabas.controller.term",
        "            await self._leave_out_returned(",
        "            len(",
    ),
    Bug(
        "orders of a former controller are carried out",
        "barnabas.replication.controller_orders",
        "        if epoch < self.controller_epoch:\n",
        "        if False:\n",
    ),
)


class _Mutating(SourceFileLoader):
    def __init__(self, fullname: str, path: str, bug: Bug) -> None:
        super().__init__(fullname, path)
        self._bug = bug

    def get_code(self, fullname: str) -> CodeType:
        return compile(mutated(self._bug, Path(self.path).read_text(encoding="utf-8")), self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, bug: Bug) -> None:
        self._bug = bug

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if fullname != self._bug.module:
            return None
        found = PathFinder.find_spec(fullname, path)
        assert found is not None
        assert found.origin is not None
        return importlib.util.spec_from_loader(fullname, _Mutating(fullname, found.origin, self._bug))


def mutated(bug: Bug, source: str) -> str:
    assert source.count(bug.before) == 1, f"{bug.name}: its place in {bug.module} has changed"
    return source.replace(bug.before, bug.after)


def plant(name: str) -> None:
    """Before the module is imported."""
    (bug,) = (each for each in BUGS if each.name == name)
    assert bug.module not in sys.modules, f"{bug.module} is imported already"
    sys.meta_path.insert(0, _Finder(bug))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which bugs; without any, all of them")
    parser.add_argument("--seeds", type=int, default=100, help="how many to try for each")
    parser.add_argument("--faults-seconds", type=float, default=60.0, help="virtual, in which things break")
    options = parser.parse_args()
    survivors = 0
    for bug in BUGS:
        if options.names and bug.name not in options.names:
            continue
        command = [
            sys.executable, "-m", "tests.simulation.run", "--bug", bug.name, "--until-failure", "--no-shrink",
            "--seeds", str(options.seeds), "--faults-seconds", str(options.faults_seconds),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        survivors += done.returncode == 0
        print(f"{bug.name}: {done.stdout.strip().splitlines()[-1]}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
