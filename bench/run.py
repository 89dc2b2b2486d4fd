"""Barnabas beside Apache Kafka, alternately, in one run.

    make bench          # three rounds of a gigabyte each, writes bench/RESULTS.md and results.json
    make bench-quick    # one small round, prints the table and writes nothing

A round starts one subject on an empty directory, measures it, and kills it; then comes the next
subject. So both meet the same machine within minutes, and neither runs while the other is
measured. Start-up is measured cold; everything else after a warm-up, which the JVM needs. The
bare loops of `bare_loop` are measured in every round as the physical limit.
"""

from __future__ import annotations

import argparse
import compileall
import signal
import sys
from pathlib import Path

import report
from bare_loop import Subject
from raw_load import opaque_frame, run_load
from subjects import WHEEL, started
from table import WORKS
from tests.support.broker import REPOSITORY, resident_bytes
from warm_memory import warm_memory
from works import FULL, GIGABYTE, MEGABYTE, QUICK, Scale, warm_up

HERE = Path(__file__).parent
LARGE_FRAME_BYTES = 960_000
ASK_FRAME_BYTES = 100
LIMITED = {"one_record_requests", "large_batches"}
"""The works that the bare loops do as well."""


def compile_sources() -> None:
    """An installed package carries its bytecode; a working tree and an unpacked wheel must make it first."""
    for code in filter(Path.exists, (REPOSITORY / "src", WHEEL)):
        compileall.compile_dir(code, quiet=1)


def measure_subject(name: str, works: list[str], scale: Scale) -> dict[str, float]:
    with started(name) as (broker, start_s):
        figures = {"start_s": start_s, "resident_idle_mb": resident_bytes(broker) / MEGABYTE}
        warm_up(broker, scale)
        for work in works:
            print(f"  {name}: {work}", file=sys.stderr, flush=True)
            figures |= WORKS[work](broker, scale)
        return figures


def measure_bare_loops(scale: Scale) -> dict[str, float]:
    """Speed of this machine with a socket and a file alone, for the amounts of the brokers."""
    frames = {
        "large_in": ("bare write", opaque_frame(LARGE_FRAME_BYTES), 5, LARGE_FRAME_BYTES),
        "large_out": ("bare send", opaque_frame(ASK_FRAME_BYTES), 1, 1 << 20),
        "requests_1": ("bare write", opaque_frame(ASK_FRAME_BYTES), 1, 0),
        "requests_32": ("bare write", opaque_frame(ASK_FRAME_BYTES), 32, 0),
    }
    figures: dict[str, float] = {}
    with warm_memory(scale.produce_bytes):
        for name, (loop, frame, depth, bytes_each) in frames.items():
            subject = Subject(loop)
            requests = scale.produce_bytes // bytes_each if bytes_each else None
            try:
                run_load(subject.port, frame, depth=depth, requests=50)
                before_s = sum(subject.usage())
                load = run_load(subject.port, frame, depth=depth, seconds=scale.seconds, requests=requests)
                cpu_s = sum(subject.usage()) - before_s
            finally:
                subject.stop()
            if bytes_each:
                figures[f"{name}_mb_s"] = load.requests_per_s * bytes_each / MEGABYTE
                figures[f"{name}_cpu_s_gb"] = cpu_s / (load.requests * bytes_each / GIGABYTE)
            else:
                figures[f"{name}_s"] = load.requests_per_s
                figures[f"{name}_p50_us"] = load.latency.percentile_us(50)
                figures[f"{name}_cpu_us"] = cpu_s / load.requests * 1e6
    return figures


def rotated(names: list[str], number: int) -> list[str]:
    """Another subject comes first in every round."""
    first = number % len(names)
    return names[first:] + names[:first]


def end_by_exception(*_: object) -> None:
    """SIGTERM unwinds the stack, so that no server outlives the run that started it."""
    raise SystemExit("terminated")


def main() -> int:
    signal.signal(signal.SIGTERM, end_by_exception)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one small round; nothing is written")
    parser.add_argument("--rounds", type=int)
    parser.add_argument(
        "--subjects", default="barnabas,kafka", help="comma-separated, with compiled: a wheel in build/wheel"
    )
    parser.add_argument("--only", help=f"comma-separated, of {', '.join(WORKS)}")
    parser.add_argument("--keep", action="store_true", help="leave the figures of other works as they are")
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    rounds = options.rounds or (1 if options.quick else 3)
    works = options.only.split(",") if options.only else list(WORKS)
    if unknown := set(works) - set(WORKS):
        parser.error(f"no such work: {', '.join(sorted(unknown))}")
    if "consume" in works and "produce_1k" not in works:
        parser.error("consume reads what produce_1k wrote: ask for both")

    compile_sources()
    samples: report.Samples = {}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for name in rotated(options.subjects.split(","), number):
            collect(samples, name, measure_subject(name, works, scale))
        if LIMITED & set(works):
            collect(samples, "bare loop", measure_bare_loops(scale))
    described = f"{rounds} round(s), {scale.produce_bytes // MEGABYTE:,} MB each, subjects in turn."
    if options.quick:
        described += " A quick run, in which the JVM is hardly warm: a look, not a result."
    if options.keep:
        samples = report.with_last(HERE / "results.json", samples)
    about = report.versions(REPOSITORY)
    print(report.rendered(samples, about, described))
    if not options.quick:
        report.write(HERE, samples, about, described)
    return 0


def collect(samples: report.Samples, name: str, figures: dict[str, float]) -> None:
    for figure, value in figures.items():
        samples.setdefault(name, {}).setdefault(figure, []).append(value)


if __name__ == "__main__":
    raise SystemExit(main())
