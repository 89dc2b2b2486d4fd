"""Three brokers beside three brokers of Apache Kafka, alternately, in one run.

    make bench-cluster          # writes the second table of bench/RESULTS.md, and cluster.json
    make bench-cluster-quick    # one small round, printed only
    make bench-partitions       # ten thousand partitions of three replicas, ours alone, printed only

A run may come in pieces: with `--keep`, what `--only` does not name stays as the last run left it.

A round starts a cluster on empty directories, puts every work on it, and kills it; then comes the other.
Ours runs on one ZooKeeper, Apache Kafka with its own quorum, every node broker and controller at once,
heap as its scripts set it. Topics have replication factor 3 and min.insync.replicas 2. A silent broker is
believed alive for `--session-ms` in both: it is ZooKeeper's session here, and the broker's session with
the controller there. CPU and memory are sums over the three brokers; ZooKeeper's are not in them.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cluster_faults
import cluster_works
import report
from cluster_works import FULL, QUICK, ClusterScale
from run import collect, compile_sources, end_by_exception
from scratch import scratch_directory
from subjects import WHEEL
from tests.peers.kafka import HEAP
from tests.support.broker import REPOSITORY
from tests.support.clusters import AnyCluster, any_cluster
from works import MEGABYTE, Figures

HERE = Path(__file__).parent
SESSION_TIMEOUT_MS = 6_000
SUBJECTS = "comma-separated, in turn, with compiled: a wheel in build/wheel"
SETTINGS: dict[str, object] = {"min.insync.replicas": 2, "default.replication.factor": 3}

Work = Callable[[AnyCluster, ClusterScale], Figures]
WORKS: dict[str, Work] = {
    "produce": cluster_works.produce,
    "paced": cluster_works.paced,
    "requests": cluster_works.requests,
    "large_batches": cluster_works.large_batches,
    "rolling_restart": cluster_faults.rolling_restart,
    "leader_kills": cluster_faults.leader_kills,
    "controller_kills": cluster_faults.controller_kills,
}
"""On one cluster after the other, in this order: what kills comes last."""
ALONE: dict[str, Work] = {"partitions": cluster_faults.many_partitions}
"""On a cluster of its own, which nothing has used before."""


@contextmanager
def started(name: str, session_timeout_ms: int) -> Iterator[AnyCluster]:
    code = WHEEL if name == "compiled" else None
    with (
        scratch_directory(name) as directory,
        any_cluster(
            name, directory, SETTINGS, session_timeout_ms=session_timeout_ms, heap=HEAP, code=code
        ) as cluster,
    ):
        yield cluster


def measure(name: str, works: list[str], scale: ClusterScale, session_timeout_ms: int) -> Figures:
    """Figures of a subject. One that fails in a work keeps its earlier figures and leaves the rest."""
    figures: Figures = {}
    together = [title for title in WORKS if title in works]
    alone = [title for title in ALONE if title in works]
    for group in (together, *([title] for title in alone)):
        if not group:
            continue
        try:
            with started(name, session_timeout_ms) as cluster:
                if group is together:
                    cluster_works.warm_up(cluster, scale)
                for title in group:
                    figures |= measured(title, (WORKS | ALONE)[title], cluster, scale)
        except (RuntimeError, AssertionError, OSError) as failure:
            print(f"    {name} gave up: {str(failure)[:2_000]}", file=sys.stderr, flush=True)
    return figures


def measured(title: str, work: Work, cluster: AnyCluster, scale: ClusterScale) -> Figures:
    print(f"  {cluster.name}: {title}", file=sys.stderr, flush=True)
    figures = work(cluster, scale)
    said = ", ".join(f"{figure} {value:.4g}" for figure, value in figures.items())
    print(f"    {said}", file=sys.stderr, flush=True)
    return figures


def main() -> int:
    signal.signal(signal.SIGTERM, end_by_exception)
    known = [*WORKS, *ALONE]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one small round; nothing is written")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--subjects", default="barnabas,kafka", help=SUBJECTS)
    parser.add_argument("--only", help=f"comma-separated, of {', '.join(known)}")
    parser.add_argument("--keep", action="store_true", help="leave the figures of other works as they are")
    parser.add_argument("--print", action="store_true", help="write nothing")
    parser.add_argument("--session-ms", type=int, default=SESSION_TIMEOUT_MS)
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    rounds = options.rounds or (1 if options.quick else 2)
    works = options.only.split(",") if options.only else known
    if unknown := set(works) - set(known):
        parser.error(f"no such work: {', '.join(sorted(unknown))}")

    compile_sources()
    samples: report.Samples = {}
    about = report.versions(REPOSITORY)
    described = (
        f"Three brokers, replication factor 3, acks=all, min.insync.replicas 2, sessions of "
        f"{options.session_ms:,} ms. {rounds} round(s), "
        f"{scale.produce_bytes // MEGABYTE:,} MB each, subjects in turn. "
        "CPU and memory are those of the broker processes: without ZooKeeper here, "
        "with the controllers there."
    )
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for name in options.subjects.split(","):
            collect(samples, name, measure(name, works, scale, options.session_ms))
    if options.keep:
        samples = report.with_last(HERE / "cluster.json", samples)
    print(report.rendered_cluster(samples, about, described))
    if not (options.quick or options.print):
        report.write_cluster(HERE, samples, about, described)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
