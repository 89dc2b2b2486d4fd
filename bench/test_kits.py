"""Start times of test kits, and a suite of small tests with a fresh broker each.

    python bench/test_kits.py                 # everything
    python bench/test_kits.py --only suite    # 200 tests, each with a broker of its own

- `broker`, `cluster`: `run_broker()` and `run_cluster(3)`, from the call to the first acknowledged record.
- `mock`: librdkafka's mock cluster, inside the client (`test.mock.num.brokers`).
- `kfake`: franz-go's fake broker as a Go program, where Go and its module proxy can be reached.
- `mockafka`: in memory, without a protocol, where `mockafka-py` is installed.
- `suite`: 200 tests in one process of pytest; each starts a broker, writes a record and reads it.

The clock is the wall's, since a start waits for threads and files. For `suite` the CPU time stands beside it:
on a machine with other work, the rest is mostly the wait for a processor. Testcontainers needs Docker and is
not measured here.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from barnabas.testing.broker import run_broker
from barnabas.testing.cluster import run_cluster

SOURCE = Path(__file__).resolve().parents[1] / "src"
TESTS = 200
KFAKE = """
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	for range %d {
		began := time.Now()
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
		if err != nil {
			panic(err)
		}
		ready := time.Since(began)
		seeds := kgo.SeedBrokers(cluster.ListenAddrs()...)
		client, err := kgo.NewClient(seeds, kgo.DefaultProduceTopic("orders"))
		if err != nil {
			panic(err)
		}
		if err := client.ProduceSync(context.Background(), kgo.StringRecord("one")).FirstErr(); err != nil {
			panic(err)
		}
		fmt.Println(ready.Seconds(), time.Since(began).Seconds())
		client.Close()
		cluster.Close()
	}
	bufio.NewWriter(os.Stdout).Flush()
}
"""
SUITE = """
import pytest
from confluent_kafka import Producer
from barnabas.testing.broker import run_broker

@pytest.mark.parametrize("number", range(%d))
def test_orders(number):
    with run_broker() as broker:
        topic = broker.create_topic()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        producer.produce(topic, b"paid")
        assert producer.flush(30) == 0
        assert broker.values(topic) == [b"paid"]
"""


def send_one(settings: dict[str, object]) -> None:
    producer = Producer({"linger.ms": 0, "log_level": 0, **settings})
    producer.produce("orders", b"paid")
    if producer.flush(30):
        raise RuntimeError("the record was not acknowledged")


def broker() -> tuple[float, float]:
    began = time.perf_counter()
    with run_broker() as running:
        ready = time.perf_counter() - began
        send_one({"bootstrap.servers": running.bootstrap})
        return ready, time.perf_counter() - began


def cluster() -> tuple[float, float]:
    began = time.perf_counter()
    with run_cluster(3) as running:
        ready = time.perf_counter() - began
        send_one({"bootstrap.servers": running.bootstrap})
        return ready, time.perf_counter() - began


def mock() -> tuple[float, float]:
    began = time.perf_counter()
    send_one({"bootstrap.servers": "unused", "test.mock.num.brokers": 1})
    passed = time.perf_counter() - began
    return passed, passed


def report(name: str, runs: list[tuple[float, float]]) -> None:
    ready, first = zip(*runs, strict=True)
    print(
        f"{name:10} ready {statistics.median(ready):.3f} s ({min(ready):.3f} to {max(ready):.3f}),"
        f" first record {statistics.median(first):.3f} s, {len(runs)} runs"
    )


def kfake(rounds: int, source: str) -> list[tuple[float, float]] | str:
    if shutil.which("go") is None:
        return "Go is not installed"
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "main.go").write_text(KFAKE % rounds)
        module = "github.com/twmb/franz-go"
        local = [f"-replace={module}{part}={source}{part}" for part in ("", "/pkg/kfake", "/pkg/kmsg")]
        for command in (
            ["go", "mod", "init", "kfake-start"],
            ["go", "mod", "edit", *local] if source else ["go", "get", f"{module}/pkg/kfake@latest"],
            ["go", "mod", "tidy"],
            ["go", "build", "-o", "start", "."],
        ):
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"{' '.join(command)}: {done.stderr.strip()[-200:]}"
        ran = subprocess.run(["./start"], cwd=directory, capture_output=True, text=True, check=True)
    return [(float(ready), float(first)) for ready, first in map(str.split, ran.stdout.splitlines())]


def mockafka() -> str:
    if importlib.util.find_spec("mockafka") is None:
        return "mockafka-py is not installed"
    program = (
        "import time; began = time.perf_counter(); from mockafka import FakeProducer;"
        "from mockafka.admin_client import FakeAdminClientImpl, NewTopic;"
        "FakeAdminClientImpl().create_topics([NewTopic('orders', 1)]); producer = FakeProducer();"
        "producer.produce(topic='orders', value=b'paid', partition=0);"
        "print(f'{time.perf_counter() - began:.3f} s with its import')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr.strip()[-200:]


def suite() -> str:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "test_suite.py").write_text(SUITE % TESTS)
        began, used_s = time.perf_counter(), cpu_of_children_s()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
            check=False,
        )
        passed, used_s = time.perf_counter() - began, cpu_of_children_s() - used_s
    last = done.stdout.strip().splitlines()[-1]
    load = os.getloadavg()[0]
    return f"{last}; {passed:.1f} s with the start of pytest, {used_s:.1f} s of CPU, load {load:.0f}"


def cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = ("broker", "cluster", "mock", "kfake", "mockafka", "suite")
    parser.add_argument("--only", choices=names, action="append")
    parser.add_argument("--kfake-source", default="", help="a directory with franz-go's sources")
    parser.add_argument("--rounds", type=int, default=10)
    chosen = parser.parse_args()
    wanted = chosen.only or names
    measured: dict[str, Callable[[], tuple[float, float]]] = {
        "broker": broker,
        "cluster": cluster,
        "mock": mock,
    }
    for name in names:
        if name not in wanted:
            continue
        if name in measured:
            measured[name]()  # the imports are no part of a start
            report(name, [measured[name]() for _ in range(chosen.rounds)])
        elif name == "kfake":
            found = kfake(chosen.rounds, chosen.kfake_source)
            print(f"kfake      {found}") if isinstance(found, str) else report(name, found)
        else:
            print(f"{name:10} {mockafka() if name == 'mockafka' else suite()}")


if __name__ == "__main__":
    main()
