"""docs/SIMULATION.md, docs/FUZZING.md and docs/TESTING.md: their commands run.

Lengths are shorter here, and the commands that hunt planted bugs for hours only have to exist: the simulator
and the fuzzer have tests of planted bugs of their own. A `make` target is run as its commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from barnabas.testing.broker import run_broker
from tests.support.pages import REPOSITORY, Block, Shell, blocks
from tests.support.ports import free_port, free_ports
from tests.support.process import ServerProcess
from tests.support.waiting import PATIENCE_S, eventually

MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
LONG = {"simulate-bugs": "tests.simulation.bugs", "fuzz-bugs": "tests.fuzz.hunt"}
"""Targets that run for hours, with the module that each starts."""
SHORTER = {
    "SECONDS": "1",
    "FUZZ_INPUTS": "2000",
    "FUZZ_REQUESTS": "200",
    "FUZZ_SIMULATED": "200",
    "FUZZ_GUIDED": "0",
}


def recipe(command: str) -> str:
    """Run of `make TARGET NAME=VALUE…`, with shorter lengths."""
    _, target, *given = command.split()
    (line,) = re.findall(rf"^{target}:.*\n\t(.*)$", MAKEFILE, re.MULTILINE)
    values = dict(re.findall(r"^(\w+) +\?= (\S+)$", MAKEFILE, re.MULTILINE))
    values |= dict(each.split("=") for each in given)
    assert values.keys() >= dict(each.split("=") for each in given).keys()
    values |= SHORTER if not given else {name: SHORTER.get(name, values[name]) for name in values}
    return re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1], ""), line).replace("/python", "python")


def commands(page: str, program: str) -> list[str]:
    return [line for each in blocks(page, "sh") for line in each.commands if line.startswith(program)]


@pytest.mark.parametrize("command", commands("docs/SIMULATION.md", "make sim"))
def test_a_target_of_the_simulator_runs(command: str, tmp_path: Path) -> None:
    runs(command, tmp_path, "seeds, 0 failed")


@pytest.mark.parametrize("command", commands("docs/FUZZING.md", "make"))
def test_a_target_of_the_fuzzer_runs(command: str, tmp_path: Path) -> None:
    runs(command, tmp_path, "counts:")


def runs(command: str, directory: Path, said: str) -> None:
    target = command.split()[1]
    if target in LONG:
        assert LONG[target] in MAKEFILE.partition(f"\n{target}:")[2].partition("\n\n")[0]
        assert (REPOSITORY / (LONG[target].replace(".", "/") + ".py")).is_file()
        return
    shell = Shell(directory)
    assert said in shell.run(f"cd {shlex.quote(str(REPOSITORY))}; {recipe(command)}", timeout_s=600)


@pytest.mark.parametrize("command", commands("docs/SIMULATION.md", "python"))
def test_a_run_of_the_simulator_does_what_the_page_says(command: str, tmp_path: Path) -> None:
    command = re.sub(r"--seeds \d+", "--seeds 1", command)
    said = Shell(tmp_path).run(f"cd {shlex.quote(str(REPOSITORY))}; {command}", timeout_s=600)
    assert ("0 complaints" in said or "clean" in said) if "--replay" in command else "0 failed" in said


def test_the_long_run_of_the_page_is_a_run(tmp_path: Path) -> None:
    (loop,) = (each.text for each in blocks("docs/SIMULATION.md", "sh") if "for core" in each.text)
    (command,) = re.findall(r"(python -m .*) &$", loop, re.MULTILINE)
    command = command.replace("${core}", "1").replace("3600", "1").replace("300", "5")
    said = Shell(tmp_path).run(f"cd {shlex.quote(str(REPOSITORY))}; {command}", timeout_s=600)
    assert "seeds, 0 failed" in said


def test_a_recording_is_made_and_replayed_as_the_page_says(tmp_path: Path) -> None:
    recording, alone, named = commands("docs/TESTING.md", "barnabas re")
    proxy = free_port()
    with run_broker() as broker:
        shell = Shell(tmp_path, f"127.0.0.1:{proxy}")
        line = recording.replace("127.0.0.1:9095", f"127.0.0.1:{proxy}")
        process = ServerProcess(
            shlex.split(line.replace("127.0.0.1:9092", broker.bootstrap)),
            is_ready=lambda said: said.startswith("recording on"),
            environment=shell.environment,
            working_directory=tmp_path,
        )
        process.wait_ready(PATIENCE_S)
        shell.run("barnabas topic create orders; echo paid | barnabas produce orders")
        process.stop()
        assert "answers compared, " in shell.run(alone)
        said = shell.run(named.replace("127.0.0.1:9092", broker.bootstrap), code=1)
    assert "CreateTopics" in said
    assert "recorded no error, replayed 36 (TOPIC_ALREADY_EXISTS)" in said


@contextmanager
def controlled(block: Block, directory: Path, *options: str) -> Iterator[tuple[Shell, Iterator[str]]]:
    """A shell beside the broker or cluster of a block's first command, and its other commands."""
    start, *questions = block.commands
    control = free_port()
    shell = Shell(directory)
    process = ServerProcess(
        [
            *shlex.split(start.replace(":8500", f":{control}")),
            "--data-dir",
            str(directory / "data"),
            *options,
        ],
        is_ready=lambda said: said.startswith("barnabas ready"),
        environment=shell.environment,
    )
    try:
        bootstrap = re.findall(r"PLAINTEXT://([\d.:]+)", process.wait_ready(PATIENCE_S))[0]
        shell.environment["BARNABAS_BOOTSTRAP"] = bootstrap
        yield shell, (each.replace("8500", str(control)) for each in questions)
    finally:
        process.stop()


def asked(shell: Shell, question: str) -> str:
    return shell.run(f"curl --fail-with-body -sS {question.removeprefix('curl')}")


def test_the_control_interface_does_what_the_page_says(tmp_path: Path) -> None:
    block, _ = (each for each in blocks("docs/TESTING.md", "sh") if "--control" in each.text)
    with controlled(block, tmp_path) as (shell, questions):
        consumer = Consumer(
            {
                "bootstrap.servers": shell.environment["BARNABAS_BOOTSTRAP"],
                "group.id": "my-group",
                "auto.offset.reset": "earliest",
            }
        )
        answers = []
        for each in questions:
            if "/wait" in each:  # a producer meets the fault
                shell.run("echo paid | barnabas produce orders")
            if "/groups" in each:
                consumer.subscribe(["orders"])
                eventually(lambda: consumer.poll(0.1) is not None, "a member has its partitions")
            answers.append(asked(shell, each))
        consumer.close()
    assert '"removed": 1' in answers[-4]
    assert '"paid"' in answers[-3]
    assert '"snapshot": 1' in answers[-2]


def test_the_control_interface_of_a_cluster_does_what_the_page_says(tmp_path: Path) -> None:
    _, block = (each for each in blocks("docs/TESTING.md", "sh") if "--control" in each.text)
    listener = f"PLAINTEXT://127.0.0.1:{free_ports(3)}"
    with controlled(block, tmp_path, "--listener", listener) as (shell, questions):
        answers = [asked(shell, each) for each in questions]
    assert answers[0].count('"running"') == 3
    assert '"leader": 3' in answers[-3]
    assert '"broker": 3' in answers[-1]
