"""`python -m tests.fuzz.run`: decoders, then sequences, for so many inputs and requests or for so long.

A finding is shrunk, reported, and kept as a file in `kept`, which tests play again.
"""

from __future__ import annotations

import argparse
import base64
import json
import logging
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.fuzz import counts

if TYPE_CHECKING:
    from tests.fuzz.byte_loop import Finding
    from tests.fuzz.life import Failure

KEPT = Path(__file__).parent / "kept"
CAUGHT = "caught after"
STEPS, STEPS_LONG = 480, 20_000
"""Of one sequence."""
SEQUENCES_PER_LIFE = 8
LONG_REQUESTS = 200_000
"""A run of more has long sequences and fewer restarts for each request."""
SIMULATED_STEPS = 300
SEEDS_APART = 1_000_000


def main() -> int:
    options = _options()
    # Brokers end with the fuzzer, also where it is stopped from outside.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if options.bug:
        from tests.fuzz.planted import BUGS
        from tests.support import planting

        planting.plant(planting.named(BUGS, options.bug))
    if options.processes > 1:
        return 1 if run_processes(options) else 0
    failed = 0
    if options.inputs:
        failed += run_decoders(options)
    if options.guided:
        failed += run_guided(options)
    if options.simulated and not (failed and options.until_failure):
        failed += run_simulated(options)
    if options.large and not (failed and options.until_failure):
        failed += run_large(options, "large requests")
    if options.scripts and not (failed and options.until_failure):
        failed += run_large(options, "scripts")
    if options.requests and not (failed and options.until_failure):
        failed += run_sequences(options)
    return 1 if failed else 0


def run_decoders(options: argparse.Namespace) -> int:
    from tests.fuzz import byte_loop, targets

    logging.disable(logging.CRITICAL)  # readers report bad input, which here is all of it
    every = targets.all_targets(Random(options.seed))
    found: dict[tuple[str, str], Finding] = {}

    def keep(finding: Finding) -> bool:
        if (finding.target, finding.kind) not in found:
            found[finding.target, finding.kind] = finding
            (target,) = (each for each in every if each.name == finding.target)
            smallest = (
                finding if options.no_shrink or finding.kind == "slow" else byte_loop.shrink(target, finding)
            )
            print(
                f"{finding.target}: {finding.kind} with {smallest.data!r}\n{smallest.told[-1_500:]}",
                flush=True,
            )
            if not options.no_shrink:
                keep_input(smallest)
        return bool(options.until_failure)

    began_s = time.process_time()
    done = byte_loop.run_inputs(every, options.inputs, options.seed, keep)
    spent_s = max(time.process_time() - began_s, 1e-9)
    logging.disable(logging.NOTSET)
    print(
        f"{done} inputs to {len(every)} decoders and readers, {len(found)} findings, {done / spent_s:.0f} a s"
    )
    print(counts.line(counts.DECODERS, seed=options.seed, inputs=done, findings=len(found), seconds=spent_s))
    if found and options.until_failure:
        print(f"{CAUGHT} {done} inputs")
    return len(found)


def keep_input(finding: Finding) -> None:
    name = "".join(
        letter if letter.isalnum() else "-" for letter in f"{finding.target} {finding.kind}"
    ).lower()
    content = {
        "target": finding.target,
        "kind": finding.kind,
        "data": base64.b64encode(finding.data).decode(),
        "told": finding.told.splitlines()[-1],
    }
    KEPT.mkdir(exist_ok=True)
    (KEPT / f"input-{name[:80]}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def run_guided(options: argparse.Namespace) -> int:
    from tests.fuzz import guided

    if not guided.is_here():
        print(guided.MISSING)
        return 0
    done, found = guided.run_guided(options.guided, options.seed)
    print(f"{done} inputs chosen by coverage, {int(found is not None)} findings")
    if found is not None:
        print(f"{found['target']}: {found['kind']} with {found['data']}\n{found['told'][-1_500:]}")
    return int(found is not None)


def run_simulated(options: argparse.Namespace) -> int:
    from tests.fuzz.simulated import SimulatedSequence

    began_s = time.process_time()
    seed, sent, restarts, failed, virtual_s = options.seed, 0, 0, 0, 0.0
    while sent < options.simulated and not (failed and options.until_failure):
        outcome = SimulatedSequence(seed, SIMULATED_STEPS).run()
        sent += outcome.requests
        restarts += outcome.restarts
        virtual_s += outcome.virtual_s
        failed += bool(outcome.complaints)
        for complaint in outcome.complaints[:5]:
            print(f"simulated, after {sent} requests (seed {seed}): {complaint[:3_000]}", flush=True)
        seed += 1
        print(
            counts.line(
                counts.SIMULATED,
                seed=options.seed,
                requests=sent,
                restarts=restarts,
                virtual_minutes=virtual_s / 60,
                failures=failed,
                seconds=time.process_time() - began_s,
            ),
            flush=True,
        )
    spent_s = max(time.process_time() - began_s, 1e-9)
    print(
        f"{sent} requests in the simulator, {restarts} restarts, {virtual_s / 3_600:.1f} hours,"
        f" {failed} failures, {sent / spent_s:.0f} a second",
        flush=True,
    )
    if failed and options.until_failure:
        print(f"{CAUGHT} {sent} simulated requests")
    return failed


def run_large(options: argparse.Namespace, kind: str) -> int:
    """Large requests, or scripts of known faults."""
    from tests.fuzz import large_requests
    from tests.fuzz import life as lives

    failed = played = 0
    with lives.life(options.bug) as life:
        play = large_requests.play_scripts if kind == "scripts" else large_requests.play
        for _, complaints in play(life):
            played += 1
            for complaint in complaints:
                failed += 1
                print(f"{kind}, after {played}: {complaint[:3_000]}", flush=True)
            if complaints and options.until_failure:
                print(f"{CAUGHT} {played} {kind}")
                break
    print(f"{played} {kind}, {failed} complaints", flush=True)
    return failed


def run_sequences(options: argparse.Namespace) -> int:
    from tests.fuzz import life as lives
    from tests.fuzz.plan import LONG, SOCKETS

    is_long = options.requests > LONG_REQUESTS
    steps, rates = (STEPS_LONG, LONG) if is_long else (STEPS, SOCKETS)
    began_s = time.monotonic()
    seed, sent, answered, restarts, lived, failed = options.seed, 0, 0, 0, 0, 0

    def is_over() -> bool:
        late = options.seconds and time.monotonic() - began_s > options.seconds
        return bool(sent >= options.requests or late or (failed and options.until_failure))

    while not is_over():
        with lives.life(options.bug) as life:
            failures = []
            for played in range(SEQUENCES_PER_LIFE):
                failure = life.play(seed, steps, rates) or (life.interfere(seed) if played == 0 else None)
                seed += 1
                if failure is not None:
                    failures.append(failure)
                    break
                if sent + life.requests >= options.requests:
                    break
            ended = None if failures else life.end()
            failures += [ended] if ended is not None else []
            sent += life.requests
            answered += life.answered
            restarts += life.restarts + 1
            lived += 1
        for failure in failures:
            failed += 1
            _tell(failure, options, sent)
        told = {"seed": options.seed, "requests": sent, "answered": answered, "restarts": restarts}
        spent_s = time.monotonic() - began_s
        print(
            counts.line(counts.SEQUENCES, **told, lives=lived, failures=failed, seconds=spent_s), flush=True
        )
    if failed and options.until_failure:
        print(f"{CAUGHT} {sent} requests")
    return failed


def run_processes(options: argparse.Namespace) -> int:
    """As many processes with seeds of their own, each with its share; their lines, and the sum of them."""
    directory = Path(tempfile.mkdtemp(prefix="fuzz-processes-"))
    children = []
    for number in range(options.processes):
        command = [sys.executable, "-m", "tests.fuzz.run", "--seed", str(options.seed + number * SEEDS_APART)]
        for share in ("inputs", "guided", "simulated", "requests"):
            command += [f"--{share}", str(-(-getattr(options, share) // options.processes))]
        command += ["--seconds", str(options.seconds), "--trials", str(options.trials)]
        command += [
            f"--{name.replace('_', '-')}" for name in ("until_failure", "no_shrink") if getattr(options, name)
        ]
        command += ["--bug", options.bug] if options.bug else []
        with (directory / f"{number}.log").open("wb") as log:
            children.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
    try:
        failed = sum(child.wait() != 0 for child in children)
    finally:
        for child in children:
            child.terminate()
            child.wait()
    texts = [(directory / f"{number}.log").read_text() for number in range(options.processes)]
    print("".join(texts), end="")
    for part, sums in sorted(counts.added(texts).items()):
        print("all " + counts.line(part, **sums), flush=True)
    shutil.rmtree(directory)
    return failed


def _tell(failure: Failure, options: argparse.Namespace, sent: int) -> None:
    from tests.fuzz import life as lives

    for complaint in failure.complaints[:5]:
        print(f"after {sent} requests (seed {failure.recording.seed}): {complaint[:3_000]}", flush=True)
    if options.no_shrink or not failure.recording.steps:
        return
    smallest = lives.shrink(failure, options.trials, options.bug)
    KEPT.mkdir(exist_ok=True)
    path = KEPT / f"sequence-{failure.recording.seed}.json"
    smallest.recording.write(path)
    print(f"{len(smallest.recording.steps)} steps are left of it, in {path}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=2_000_000, help="for the decoders")
    parser.add_argument("--guided", type=int, default=0, help="inputs that Atheris chooses by coverage")
    parser.add_argument("--requests", type=int, default=20_000, help="in sequences, to a broker")
    parser.add_argument("--large", action="store_true", help="the largest request of every API")
    parser.add_argument("--scripts", action="store_true", help="of known faults")
    parser.add_argument("--simulated", type=int, default=0, help="requests in sequences in the simulator")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="for the sequences at the most; 0 is no limit"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--processes", type=int, default=1, help="that share the work, with seeds of their own"
    )
    parser.add_argument("--bug", help="the name of one that is planted")
    parser.add_argument("--until-failure", action="store_true")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--trials", type=int, default=40, help="lives to make a failed sequence smaller")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
