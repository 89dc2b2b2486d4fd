"""CPU from the start of a pipeline on Spark to the end of its first micro-batch, by kind of process.

    PYTHONPATH=src:. python bench/spark_start.py --rounds 3

A pipeline from topic to topic, run to its end by `barnabas pipeline run`, with Spark's own settings and with
ours, in turn. The CPU (user and system) of every process of the run is read from /proc until the first
micro-batch is reported; wall-clock time on a busy machine says little. `--conf` tries other settings beside
ours: a JSON object of Spark's settings.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

import pyspark
from tests.support.broker import REPOSITORY, BarnabasBroker, running
from tests.support.fixtures import create_topic
from tests.support.topics import produce

from barnabas.pipelines.spark.jvm.session import QUIET

SPARKS_OWN = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={QUIET.as_uri()}",
    "spark.python.daemon.module": "pyspark.daemon",
}
"""Reset of our session's settings to Spark's defaults; `SPARK_HOME` is the installed one."""
BATCH = re.compile(r"batch \d+  [\d,]+ records")
SAMPLE_S = 0.1
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
KINDS = (
    ("java", "JVM"),
    ("pyspark.worker", "tasks"),
    ("pyspark.sql.worker", "planning"),
    ("python_streaming_source_runner", "stream source"),
    ("-m barnabas", "driver"),
)


class Processes:
    """All of one session, the dead ones too, with the CPU that each had when it was last seen."""

    def __init__(self, session_id: int) -> None:
        self._session_id = session_id
        self._cpu_s: dict[tuple[int, str], float] = {}
        self._kinds: dict[tuple[int, str], str] = {}
        self.commands: dict[tuple[int, str], str] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def by_kind(self) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        for process, cpu_s in list(self._cpu_s.items()):
            found[self._kinds[process]] += cpu_s
        return dict(found)

    def count(self) -> int:
        return len(self._cpu_s)

    def each(self) -> list[tuple[float, str]]:
        """CPU and command of every process, the greediest first."""
        found = [(cpu_s, self.commands.get(process, "?")[:100]) for process, cpu_s in self._cpu_s.items()]
        return sorted(found, reverse=True)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            for entry in os.scandir("/proc"):
                if entry.name.isdecimal():
                    try:
                        self._look(entry.path)
                    except OSError:
                        continue

    def _look(self, path: str) -> None:
        fields = Path(path, "stat").read_text().rsplit(") ", 1)[1].split()
        if int(fields[3]) != self._session_id:
            return
        process = int(path.rsplit("/", 1)[1]), fields[19]
        self._cpu_s[process] = (int(fields[11]) + int(fields[12])) * TICK_S
        command = Path(path, "cmdline").read_text().replace("\0", " ")
        if command or process not in self._kinds:
            self._kinds[process] = next((kind for word, kind in KINDS if word in command), "launcher")
        if command:
            self.commands[process] = command


def run_once(
    spec: Path, bootstrap: str, directory: Path, *, is_sparks_own: bool, is_verbose: bool
) -> tuple[dict[str, float], float, int]:
    """CPU seconds by kind of process until the first micro-batch was through; wall-clock; processes."""
    words = [sys.executable, "-m", "barnabas", "--bootstrap", bootstrap, "pipeline", "run", str(spec)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "SPARK_MASTER": "local[2]"}
    if is_sparks_own:
        environment["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    began = time.perf_counter()
    started = subprocess.Popen(
        [*words, "--state", str(directory)],
        env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    processes = Processes(started.pid)
    assert started.stderr is not None
    told: list[str] = []
    for line in started.stderr:
        told.append(line)
        if BATCH.search(line):
            break
    else:
        raise SystemExit("".join(told))
    took_s = time.perf_counter() - began
    found, count = processes.by_kind(), processes.count()
    processes.stop()
    if is_verbose:
        for cpu_s, command in processes.each():
            print(f"{cpu_s:6.1f} s  {command}", file=sys.stderr)
    started.stderr.read()
    assert started.wait() == 0
    return found, took_s, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--conf", type=json.loads, default=None, help="settings of Spark to try beside ours")
    parser.add_argument("--verbose", action="store_true", help="every process by itself")
    parser.add_argument("--only", help="one of: Spark's own, ours, tried")
    given = parser.parse_args()
    variants: dict[str, dict[str, str]] = {"Spark's own": SPARKS_OWN, "ours": {}}
    if given.conf is not None:
        variants["tried"] = given.conf
    if given.only:
        variants = {given.only: variants[given.only]}
    samples: dict[str, list[float]] = {name: [] for name in variants}
    with tempfile.TemporaryDirectory() as place, running(BarnabasBroker(Path(place, "data"))) as broker:
        create_topic(broker, "in", 1)
        create_topic(broker, "out", 1)
        produce(broker.bootstrap, "in", [{"id": at} for at in range(100)])
        for number in range(given.rounds):
            for name, conf in variants.items():
                spec = Path(place, "spec.yaml")
                spec.write_text(
                    "name: start\nsource: {type: topic, topics: in, schema: id BIGINT}\n"
                    "sink: {type: topic, topic: out}\ntrigger: available_now\n"
                    f"spark: {json.dumps({'conf': conf})}\n"
                )
                state = Path(place, f"state-{number}-{name}")
                cpu_s, took_s, count = run_once(
                    spec, broker.bootstrap, state, is_sparks_own=conf is SPARKS_OWN, is_verbose=given.verbose
                )
                samples[name].append(sum(cpu_s.values()))
                parts = "  ".join(f"{kind} {each:.1f}" for kind, each in sorted(cpu_s.items()))
                total = f"{samples[name][-1]:6.1f} s of CPU  {took_s:6.1f} s  {count} processes"
                print(f"{name:12} {total}  {parts}", flush=True)
    for name, each in samples.items():
        print(f"{name:12} median {statistics.median(each):.1f} s ({min(each):.1f}–{max(each):.1f})")


if __name__ == "__main__":
    main()
