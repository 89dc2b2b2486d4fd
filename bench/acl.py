"""What a decision of the authorizer costs a produce: 10,000 rules, one user, one topic, in CPU time.

Three kinds: remembered (what a produce pays), decided anew (after a change of the rules), and none (no
authorizer is configured), so that the ratio says something on a machine that does other things, too.

    python bench/acl.py --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "src")]

from barnabas.core.clock import SystemClock
from barnabas.security.acl.audit import Audit
from barnabas.security.acl.authorizer import AclAuthorizer, AllowAll
from barnabas.security.acl.bindings import AccessRule, ResourcePattern
from barnabas.security.acl.vocabulary import Operation, PatternType, Permission, ResourceType
from barnabas.security.principal import KafkaPrincipal

RULES = 10_000
CALLS = 200_000
ALICE = KafkaPrincipal.user("alice")


def filled() -> AclAuthorizer:
    """A third of the rules are literal, a third prefixed, a third somebody else's on the same topic."""
    authorizer = AclAuthorizer(Audit(SystemClock()))
    by_pattern: dict[ResourcePattern, set[AccessRule]] = {}
    for number in range(RULES):
        name, kind = (
            (f"topic-{number}", PatternType.LITERAL),
            (f"prefix-{number}", PatternType.PREFIXED),
            ("orders", PatternType.LITERAL),
        )[number % 3]
        rule = AccessRule(f"User:user-{number}", "*", Operation.WRITE, Permission.ALLOW)
        by_pattern.setdefault(ResourcePattern(ResourceType.TOPIC, name, kind), set()).add(rule)
    own = ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED)
    by_pattern[own] = {AccessRule(str(ALICE), "*", Operation.WRITE, Permission.ALLOW)}
    for pattern, rules in by_pattern.items():
        authorizer.replace(pattern, frozenset(rules))
    return authorizer


def cost_ns(call: Callable[[], object], calls: int) -> float:
    begun = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - begun) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    authorizer, open_to_all = filled(), AllowAll()
    asked = (ALICE, "192.0.2.7", Operation.WRITE, ResourceType.TOPIC, "orders")
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
    for kind, each in found.items():
        print(f"{kind:<16}{statistics.median(each):>10.0f} ns {statistics.median(each) / base:>8.1f} ×")


if __name__ == "__main__":
    main()
