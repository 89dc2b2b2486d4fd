"""`barnabas pipeline run` as a person runs it: a process, its exit code, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest

from tests.support.fixtures import TopicFactory
from tests.support.process import ServerProcess
from tests.support.spark import REPOSITORY, require_spark
from tests.support.topics import consume, produce

PATIENCE_S = 900.0
JVM_ENDED = "Spark's JVM has ended: out of memory, or killed"


PRINTING = """
from pyspark.sql.streaming import StreamingQueryListener

def watch(rows):
    class Printer(StreamingQueryListener):
        def onQueryStarted(self, event): pass
        def onQueryProgress(self, event): pass
        def onQueryIdle(self, event): pass
        def onQueryTerminated(self, event): print_to("late words")

    def print_to(words):
        rows.sparkSession._jvm.java.lang.System.err.println(words)

    print_to("early words")
    rows.sparkSession.streams.addListener(Printer())
    return rows
"""
"""A transform by which the JVM prints while its query runs, and again when its query is stopped."""


class Command:
    """`barnabas pipeline run` on a spec in `directory`."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        require_spark()
        self.spec = directory / "copy.yaml"
        self.words = [sys.executable, "-m", "barnabas", "--bootstrap", bootstrap, "pipeline", "run",
                      str(self.spec), "--state", str(directory / "state")]  # fmt: skip
        self.environment = {"SPARK_MASTER": "local[1]", "PYTHONPATH": str(REPOSITORY / "src")}

    def write(self, source: str, out: str, more: str = "") -> None:
        self.spec.write_text(
            f"name: copy\nsource: {{type: topic, topics: {source}, schema: id BIGINT}}\n"
            f"sink: {{type: topic, topic: {out}}}\n{more}"
        )

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            [*self.words, *more], env=environment, capture_output=True, text=True, check=False
        )

    def start(self, records: int) -> ServerProcess:
        """Ready when it says that a batch of so many records is through."""
        return ServerProcess(
            self.words, is_ready=lambda line: f" {records} records" in line, environment=self.environment
        )


def shows(stage: str, line: str) -> bool:
    return stage in line


def packed(directory: Path) -> str:
    """Both packages as one file, as `--py-files` takes it."""
    file = directory / "packages.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for package in ("barnabas", "pyspark_barnabas"):
            for each in sorted((REPOSITORY / "src" / package).rglob("*")):
                if each.is_file() and "__pycache__" not in each.parts:
                    archive.write(each, each.relative_to(REPOSITORY / "src"))
    return str(file)


@pytest.fixture
def command(bootstrap: str, tmp_path: Path) -> Command:
    return Command(bootstrap, tmp_path)


def ids(bootstrap: str, topic: str) -> list[int]:
    return sorted(each.json["id"] for each in consume(bootstrap, topic))


def test_a_signal_ends_it_in_order_and_it_goes_on_from_there(
    command: Command, bootstrap: str, new_topic: TopicFactory
) -> None:
    source, out = new_topic(), new_topic()
    command.write(source, out)
    produce(bootstrap, source, [{"id": at} for at in range(10)])
    running = command.start(10)
    running.wait_ready(PATIENCE_S)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does it: to everything that Spark started, too
    assert_ended_in_order(running, 130)
    assert ids(bootstrap, out) == list(range(10))

    produce(bootstrap, source, [{"id": at} for at in range(10, 15)])
    running = command.start(5)
    running.wait_ready(PATIENCE_S)
    os.kill(running.pid, signal.SIGTERM)
    assert_ended_in_order(running, 0)
    assert ids(bootstrap, out) == list(range(15))


def test_after_a_signal_the_jvm_and_its_workers_print_nothing(
    command: Command, bootstrap: str, new_topic: TopicFactory
) -> None:
    """Their connections close in any order, and a process that finds its own closed prints a traceback."""
    source = new_topic()
    command.write(source, new_topic(), "transforms:\n  - python: printing:watch\n")
    command.spec.with_name("printing.py").write_text(PRINTING)
    produce(bootstrap, source, [{"id": 1}])
    running = command.start(1)
    running.wait_ready(PATIENCE_S)
    os.kill(running.pid, signal.SIGTERM)
    assert_ended_in_order(running, 0)
    assert "early words" in running.output_text()
    assert "late words" not in running.output_text()


def test_a_service_manager_may_signal_all_processes(
    command: Command, bootstrap: str, new_topic: TopicFactory
) -> None:
    """As systemd does: the JVM and the workers get the signal too, and end before they are stopped."""
    source, out = new_topic(), new_topic()
    command.write(source, out)
    for first in (0, 10):
        produce(bootstrap, source, [{"id": at} for at in range(first, first + 10)])
        running = command.start(10)
        running.wait_ready(PATIENCE_S)
        os.killpg(running.pid, signal.SIGTERM)
        assert_ended_in_order(running, 0)
    assert ids(bootstrap, out) == list(range(20))


def test_the_end_of_the_jvm_is_reported_in_one_line(
    command: Command, bootstrap: str, new_topic: TopicFactory
) -> None:
    source = new_topic()
    command.write(source, new_topic())
    produce(bootstrap, source, [{"id": 1}])
    running = command.start(1)
    running.wait_ready(PATIENCE_S)
    (jvm,) = children(running.pid)
    os.kill(jvm, signal.SIGKILL)
    assert running.wait(PATIENCE_S) == 1, running.output_text()
    assert running.output_text().splitlines()[-1] == f"barnabas: {JVM_ENDED}"
    assert "Traceback" not in running.output_text()


def children(process_id: int) -> list[int]:
    listed = Path("/proc").glob(f"{process_id}/task/*/children")
    return [int(child) for each in listed for child in each.read_text().split()]


def assert_ended_in_order(running: ServerProcess, code: int) -> None:
    assert running.wait(PATIENCE_S) == code, running.output_text()
    assert "the next run continues from here" in running.output_text()
    assert "Traceback" not in running.output_text()


def test_a_record_that_stops_the_pipeline_is_reported_in_one_line(
    command: Command, bootstrap: str, new_topic: TopicFactory
) -> None:
    source = new_topic()
    produce(bootstrap, source, [{"id": 1}, b"junk"])
    command.write(source, new_topic(), "trigger: available_now\n")
    ended = command.run()
    assert ended.returncode == 1, ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"barnabas: topic {source}, partition 0, offset 1: the value is not JSON"), last
    assert "Traceback" not in ended.stderr


def test_an_unknown_column_is_reported_in_one_line(
    command: Command, bootstrap: str, new_topic: TopicFactory
) -> None:
    command.write(new_topic(), new_topic(), "transforms:\n  - filter: idd > 1\ntrigger: available_now\n")
    ended = command.run()
    told = f"{command.spec}:5: transforms.0: there is no column 'idd'; did you mean 'id'?\n"
    assert (ended.returncode, ended.stderr) == (2, told)


def test_an_error_that_only_spark_finds_is_reported_in_one_line_with_its_location(
    command: Command, new_topic: TopicFactory
) -> None:
    command.write(new_topic(), new_topic(), "transforms:\n  - filter: uper(id) = '1'\n")
    ended = command.run()
    assert ended.returncode == 2, ended.stderr
    place = f"barnabas: {command.spec}:5: transforms.0: [UNRESOLVED_ROUTINE]"
    assert ended.stderr.splitlines()[-1].startswith(place), ended.stderr
    assert "copy: starting Spark" in ended.stderr
    for chatter in ("Traceback", "\tat ", '"level"', "== SQL =="):
        assert chatter not in ended.stderr


def test_an_interrupt_while_spark_starts_ends_it_at_once_and_in_silence(
    command: Command, new_topic: TopicFactory
) -> None:
    command.write(new_topic(), new_topic())
    for stage in ("starting Spark", "putting the pipeline together"):
        running = ServerProcess(
            command.words, is_ready=partial(shows, stage), environment=command.environment
        )
        running.wait_ready(PATIENCE_S)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(PATIENCE_S) == 130, running.output_text()
        assert "Traceback" not in running.output_text()
        assert "py4j" not in running.output_text()


def test_executors_of_a_cluster_get_what_was_packed_for_them(
    command: Command, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    """Neither package is installed there, nor is the module of the user's function."""
    source, out = new_topic(partitions=2), new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(10)])
    module = tmp_path / "away" / "doubling.py"
    module.parent.mkdir()
    module.write_text(
        "from pyspark.sql import functions as F\n\n\n"
        "def twice(number):\n    return 2 * number\n\n\n"
        "def double(rows):\n    return rows.withColumn('id', F.udf(twice, 'bigint')('id'))\n"
    )
    command.write(
        source,
        out,
        "transforms:\n  - python: doubling:double\ntrigger: available_now\n"
        f"spark:\n  conf:\n    spark.submit.pyFiles: '{packed(tmp_path)},{module}'\n"
        f"    spark.executorEnv.PYTHONPATH: {tmp_path / 'nothing'}\n    spark.executor.memory: 1g\n",
    )
    ended = command.run("--master", "local-cluster[2,1,1024]")
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert ended.stderr.splitlines()[-1] == "copy: done"
    assert ids(bootstrap, out) == list(range(0, 20, 2))
