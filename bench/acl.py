"""Cost of access rules for a produce: 10,000 rules, one user, one topic, in CPU time.

First the decision alone, in three kinds: cached (the usual cost of a produce), decided again (after a change
of the rules), and none (no authorizer is configured). Then whole produce requests of one record through
sockets, to two brokers in turn that differ in nothing but the rules, by the CPU that the operating system
charges to each: the figure is the median of the differences of the rounds.

    python bench/acl.py --rounds 15 --seconds 4
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import psutil

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from bench.raw_load import run_load
from bench.request_path import TOPIC, create_topic, produce_frame
from tests.support.broker import BarnabasBroker

from barnabas.cluster.stores.acl_store import change_rules, make_acl_paths
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import SystemClock
from barnabas.core.scheduler import InlineBackground
from barnabas.node.membership.coordination_store import open_coordination
from barnabas.security.acl.audit import Audit
from barnabas.security.acl.authorizer import AclAuthorizer, AllowAll
from barnabas.security.acl.bindings import AccessRule, ResourcePattern
from barnabas.security.acl.vocabulary import Operation, PatternType, Permission, ResourceType
from barnabas.security.identity.principal import ANONYMOUS

RULES = 10_000
CALLS = 200_000
DEPTH = 32
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def rules() -> dict[ResourcePattern, frozenset[AccessRule]]:
    """A third of the rules are literal, a third prefixed, a third another user's on the same topic."""
    by_pattern: dict[ResourcePattern, set[AccessRule]] = {}
    for number in range(RULES):
        name, kind = (
            (f"topic-{number}", PatternType.LITERAL),
            (f"prefix-{number}", PatternType.PREFIXED),
            (TOPIC, PatternType.LITERAL),
        )[number % 3]
        rule = AccessRule(f"User:user-{number}", "*", Operation.WRITE, Permission.ALLOW)
        by_pattern.setdefault(ResourcePattern(ResourceType.TOPIC, name, kind), set()).add(rule)
    own = ResourcePattern(ResourceType.TOPIC, TOPIC[:3], PatternType.PREFIXED)
    by_pattern[own] = {AccessRule(str(ANONYMOUS), "*", Operation.WRITE, Permission.ALLOW)}
    anybody = AccessRule(str(ANONYMOUS), "*", Operation.ALL, Permission.ALLOW)
    by_pattern[ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)] = {anybody}
    return {pattern: frozenset(each) for pattern, each in by_pattern.items()}


def cost_ns(call: Callable[[], object], calls: int) -> float:
    begun = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - begun) / calls


def measure_decisions(rounds: int) -> None:
    authorizer, open_to_all = AclAuthorizer(Audit(SystemClock()), (), is_open_without_rules=False), AllowAll()
    for pattern, each in rules().items():
        authorizer.replace(pattern, each)
    asked = (ANONYMOUS, "192.0.2.7", Operation.WRITE, ResourceType.TOPIC, TOPIC)
    assert authorizer.allows(*asked)
    kinds: dict[str, tuple[Callable[[], object], int]] = {
        "remembered": (lambda: authorizer.allows(*asked), CALLS),
        "decided anew": (lambda: authorizer._decide(*asked), CALLS // 100),
        "no authorizer": (lambda: open_to_all.allows(*asked), CALLS),
    }
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, (call, calls) in kinds.items():
            found[kind].append(cost_ns(call, calls))
    base = statistics.median(found["no authorizer"])
    for kind, costs in found.items():
        median = statistics.median(costs)
        print(f"{kind:<16}{median:>10.0f} ns {median / base:>8.1f} ×")


async def store_rules(data_directory: Path) -> None:
    """Before the broker starts: through its socket it would take as many changes as there are patterns."""
    config = BrokerConfig.load({"log.dirs": str(data_directory)})
    async with open_coordination(config, SystemClock(), InlineBackground()) as znodes:
        await make_acl_paths(znodes)
        for pattern, wanted in rules().items():
            await change_rules(znodes, pattern, wanted.union)


def measure_requests(rounds: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as text, ExitStack() as stack:
        (Path(text) / "with").mkdir()
        asyncio.run(store_rules(Path(text) / "with"))
        brokers = {
            "with rules": BarnabasBroker(Path(text) / "with", settings=AUTHORIZER),
            "without": BarnabasBroker(Path(text) / "without"),
        }
        for broker in brokers.values():
            broker.start()
            stack.callback(broker.kill)
            create_topic(broker.port)
        costs = [measure_round(brokers, seconds) for _ in range(rounds + 1)][1:]
    for name in brokers:
        print(f"a produce {name:<12} {statistics.median(each[name] for each in costs):8.2f} us of CPU")
    differences = [each["with rules"] - each["without"] for each in costs]
    shown = f"{statistics.median(differences):+.2f} us ({min(differences):+.2f} to {max(differences):+.2f})"
    print(f"the rules cost a produce {shown}; wanted: at most 2")


def measure_round(brokers: Mapping[str, BarnabasBroker], seconds: float) -> dict[str, float]:
    found = {}
    frame = produce_frame(1, 100)
    for name, broker in brokers.items():
        process = psutil.Process(broker.pid)
        before = process.cpu_times()
        result = run_load(broker.port, frame, depth=DEPTH, seconds=seconds)
        after = process.cpu_times()
        spent_s = after.user + after.system - before.user - before.system
        found[name] = spent_s * 1e6 / result.requests
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=4.0)
    arguments = parser.parse_args()
    measure_decisions(min(arguments.rounds, 5))
    measure_requests(arguments.rounds, arguments.seconds)


if __name__ == "__main__":
    main()
