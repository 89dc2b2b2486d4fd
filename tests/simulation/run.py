"""`python -m tests.simulation.run --seconds 60`: seeds one after the other, until the time is over.

A seed that fails is said with the command that repeats it, its faults are made fewer (`shrinking`), and what
is left is written to a file that can be read, and played again with `--replay`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.planted import BUGS
from tests.support import planting

if TYPE_CHECKING:
    from tests.simulation.simulation import Outcome, Simulation

FAULTS_S = 60.0


class Tally:
    """Totals of the runs so far. The speed is counted in processor time, which a busy machine does not
    distort."""

    def __init__(self) -> None:
        self.seeds = self.failed = self.messages = self.writes = 0
        self.virtual_s = 0.0
        self.faults: Counter[str] = Counter()
        self._began_s = time.process_time()

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.failed += bool(outcome.complaints)
        self.virtual_s += outcome.virtual_s
        self.messages += outcome.events
        self.writes += outcome.writes
        self.faults.update(fault.kind for fault in outcome.faults)

    def __str__(self) -> str:
        spent_s = time.process_time() - self._began_s
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.faults.most_common())
        return (
            f"{self.seeds} seeds, {self.failed} failed; {self.virtual_s / 3_600:.2f} virtual hours in"
            f" {spent_s:.0f} s of one core ({self.virtual_s / spent_s:.0f} times as fast),"
            f" {self.messages} messages, {self.writes} writes, {self.faults.total()} faults ({kinds})"
        )


def main() -> int:
    options = _options()
    if options.bug:
        planting.plant(planting.named(BUGS, options.bug))
    from tests.simulation.shrinking import shrink, write

    began_s = time.monotonic()
    tally = Tally()
    while True:
        outcome = _simulation(options, options.seed + tally.seeds).run()
        tally.add(outcome)
        _report(outcome, options)
        if outcome.complaints and options.shrink:
            smallest = shrink(outcome, lambda line: print(line, flush=True), options.faults_seconds)
            print(f"the smallest is in {write(smallest, options.transcripts, options.faults_seconds)}")
        spent_s = time.monotonic() - began_s
        if tally.failed and options.until_failure:
            where = f"caught by seed {outcome.seed} of {options.seed}…"
            print(f"{where}, after {tally.virtual_s:.0f} virtual seconds: {outcome.complaints[0]}")
            return 1
        if options.replay or (tally.seeds >= options.seeds if options.seeds else spent_s > options.seconds):
            break
    print(tally)
    return 1 if tally.failed else 0


def _simulation(options: argparse.Namespace, seed: int) -> Simulation:
    from tests.simulation.shape import draw_shape
    from tests.simulation.shrinking import replay
    from tests.simulation.simulation import Simulation

    if options.replay:
        return replay(options.replay)
    shape = draw_shape(seed, options.trial)
    if options.brokers:
        shape = shape._replace(brokers=options.brokers)
    if options.busy:
        shape = shape._replace(busy_share=options.busy)
    ends_early = options.until_failure and not options.shrink
    return Simulation(seed, faults_s=options.faults_seconds, shape=shape, ends_early=ends_early)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, help="how many; without it, as many as there is time for")
    parser.add_argument("--seconds", type=float, default=60.0, help="of real time")
    parser.add_argument(
        "--faults-seconds", type=float, default=FAULTS_S, help="virtual, in which things break"
    )
    parser.add_argument("--brokers", type=int, help="how many; without it, the seed says three or five")
    parser.add_argument("--busy", type=float, help="share of the time in which clients do all they can")
    parser.add_argument("--trial", default="", help="the name of one that every seed gets")
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
        again = f"--seeds 1 --seed {outcome.seed} --faults-seconds {options.faults_seconds:g}"
        if options.trial:
            again += f" --trial {options.trial}"
        if options.brokers:
            again += f" --brokers {options.brokers}"
        if options.busy:
            again += f" --busy {options.busy:g}"
        print(f"again: python -m tests.simulation.run {again}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
