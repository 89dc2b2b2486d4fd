"""`python -m tests.simulation.run --seconds 60`: seeds one after the other, until the time is over.

A seed that fails is said with the command that repeats it, its faults are made fewer (`shrinking`), and what
is left is written to a file that can be read, and played again with `--replay`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation import bugs

if TYPE_CHECKING:
    from tests.simulation.simulation import Outcome

FAULTS_S = 60.0


def main() -> int:
    options = _options()
    if options.bug:
        bugs.plant(options.bug)
    from tests.simulation.shrinking import read, shrink, write
    from tests.simulation.simulation import Simulation

    began_s = time.monotonic()
    done = failed = messages = faults = 0
    virtual_s = 0.0
    while True:
        seed, given = read(options.replay) if options.replay else (options.seed + done, None)
        outcome = Simulation(seed, given, faults_s=options.faults_seconds).run()
        done += 1
        virtual_s += outcome.virtual_s
        messages += outcome.events
        faults += len(outcome.faults)
        _report(outcome, options)
        if outcome.complaints:
            failed += 1
            if options.shrink:
                smallest = shrink(outcome, lambda line: print(line, flush=True), options.faults_seconds)
                print(f"the smallest is in {write(smallest, options.transcripts)}")
        spent_s = time.monotonic() - began_s
        if failed and options.until_failure:
            print(f"caught by seed {outcome.seed} of {options.seed}…, after {virtual_s:.0f} virtual seconds")
            return 1
        if options.replay or (done >= options.seeds if options.seeds else spent_s > options.seconds):
            break
    print(
        f"{done} seeds, {failed} failed; {virtual_s / 3_600:.2f} virtual hours in {spent_s:.0f} s"
        f" ({virtual_s / spent_s:.0f} times as fast), {messages} messages, {faults} faults"
    )
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, help="how many; without it, as many as there is time for")
    parser.add_argument("--seconds", type=float, default=60.0, help="of real time")
    parser.add_argument(
        "--faults-seconds", type=float, default=FAULTS_S, help="virtual, in which things break"
    )
    parser.add_argument("--bug", help="the name of one that is planted")
    parser.add_argument("--until-failure", action="store_true")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    parser.add_argument("--replay", type=Path, help="a transcript")
    parser.add_argument("--transcripts", type=Path, default=Path(tempfile.gettempdir()) / "simulation")
    parser.add_argument("--verbose", action="store_true", help="print every run, line by line")
    return parser.parse_args()


def _report(outcome: Outcome, options: argparse.Namespace) -> None:
    print(
        f"seed {outcome.seed}: {'FAILED' if outcome.complaints else 'clean'}, {outcome.virtual_s:.0f} s,"
        f" {len(outcome.faults)} faults, {outcome.writes} writes, {outcome.events} messages,"
        f" trace {outcome.digest}",
        flush=True,
    )
    if outcome.complaints or options.verbose:
        print("\n".join(outcome.lines))
    if options.verbose:
        print("\n".join(outcome.errors))
    if outcome.complaints:
        print(f"again: python -m tests.simulation.run --seeds 1 --seed {outcome.seed}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
