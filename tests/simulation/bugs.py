"""Bugs that are planted to see whether the simulator finds them: the mistakes that engineers make in brokers.

Each is planted in a process of its own (`tests.support.planting`). `python -m tests.simulation.bugs` plants
them one after the other, and says after how many seeds each was caught. A bug that needs a history which
chance hardly ever brings about names its trial: every seed of its hunt ends with that one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.simulation.planted import BUGS
from tests.support.planting import Bug

CAUGHT = "caught by seed"


def hunt(bug: Bug, options: argparse.Namespace) -> tuple[bool, str]:
    """Whether a seed has caught it, and what the run says at its end."""
    command = [
        sys.executable, "-m", "tests.simulation.run", "--bug", bug.name, "--until-failure", "--no-shrink",
        "--seed", str(options.seed), "--seeds", str(options.seeds),
        "--faults-seconds", str(options.faults_seconds), "--trial", bug.trial,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return CAUGHT in lines[-1], lines[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which bugs, by parts of their names; without any, all")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=100, help="how many to try for each")
    parser.add_argument("--faults-seconds", type=float, default=60.0, help="virtual, in which things break")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes at a time")
    options = parser.parse_args()
    wanted = [bug for bug in BUGS if not options.names or any(each in bug.name for each in options.names)]
    survivors = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        found = pool.map(lambda bug: hunt(bug, options), wanted)
        for bug, (is_caught, told) in zip(wanted, found, strict=True):
            survivors += not is_caught
            print(f"{bug.name}: {told}", flush=True)
    print(f"{len(wanted)} bugs, {survivors} not caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
