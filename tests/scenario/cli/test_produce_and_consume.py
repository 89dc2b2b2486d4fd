"""`produce`, `consume` and `perf`: formats, faulty lines, transactions, bounds, brokers that hang."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from barnabas.testing.broker import run_broker
from tests.scenario.cli.command import Barnabas
from tests.support.fixtures import TopicFactory
from tests.support.waiting import PATIENCE_S


def test_a_faulty_line_names_the_records_before_it(barnabas: Barnabas, topic: str) -> None:
    lines = b'{"value": "a"}\n{"value": "b"}\n{"vaule": "c"}\n{"value": "d"}\n'
    told = barnabas("produce", topic, "--json", stdin=lines, code=1)
    assert told == (
        "barnabas: line 3 of standard input: unknown field 'vaule': did you mean 'value'?;"
        " 2 records were written before\n"
    )
    assert barnabas("consume", topic, "--to-end") == "a\nb\n"


def test_a_faulty_line_aborts_its_transaction(barnabas: Barnabas, topic: str) -> None:
    in_pairs = ("--json", "--transactional-id", topic, "--transaction-records", "2")
    lines = "".join(f'{{"value": "{word}"}}\n' for word in "abc").encode()
    told = barnabas("produce", topic, *in_pairs, stdin=lines + b"[]\n", code=1)
    assert "line 4 of standard input: the line is not a JSON object" in told
    assert told.endswith("; 2 records were written before\n")
    assert barnabas("consume", topic, "--to-end", "--committed") == "a\nb\n"
    barnabas("produce", topic, "--transactional-id", topic, stdin=b"d\ne\nf\n")
    assert barnabas("consume", topic, "--from-beginning", "--count", "5", "--committed").split() == [*"abdef"]


def test_bytes_of_the_shell_become_bytes_of_keys_and_headers(barnabas: Barnabas, topic: str) -> None:
    binary = os.fsdecode(b"\xff")
    barnabas("produce", topic, "--key", binary, "--header", f"h={binary}", stdin=b"v\n")
    (line,) = barnabas("consume", topic, "--to-end", "--json").splitlines()
    shown = json.loads(line)
    assert shown["key_base64"] == "/w=="
    assert shown["headers"] == [{"key": "h", "value_base64": "/w=="}]


def test_files_are_written_as_lines_or_as_a_whole(barnabas: Barnabas, topic: str, tmp_path: Path) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("a\nb\n")
    two.write_text("c")
    files = ("--file", str(one), "--file", str(two))
    barnabas("produce", topic, *files, "--key", "k", "--linger", "0", "--partitioner", "round-robin")
    barnabas("produce", topic, *files, "--whole", "--batch-size", "1")
    found = [json.loads(line) for line in barnabas("consume", topic, "--to-end", "--json").splitlines()]
    assert [(each["key"], each["value"]) for each in found] == [
        ("k", "a"),
        ("k", "b"),
        ("k", "c"),
        (None, "a\nb\n"),
        (None, "c"),
    ]


def test_numbers_go_through_kafkas_serializers(barnabas: Barnabas, topic: str) -> None:
    formats = ("--key-format", "integer", "--value-format", "long")
    barnabas("produce", topic, *formats, "--key-separator", ":", stdin=b"7:-1\n")
    assert barnabas("consume", topic, *formats, "--to-end", "--keys") == "7\t-1\n"
    shown = ("--key-format", "hex", "--value-format", "base64", "--to-end", "--keys")
    assert barnabas("consume", topic, *shown) == "00000007\t//////////8=\n"
    told = barnabas("consume", topic, "--value-format", "integer", "--to-end", code=1)
    assert f"{topic}-0 offset 0, value: " in told
    told = barnabas("produce", topic, "--value-format", "integer", stdin=b"1\nx\n", code=1)
    assert "line 2 of standard input: 'x' is no integer; 1 record was written before" in told


def test_reading_ends_where_it_is_told_to(barnabas: Barnabas, new_topic: TopicFactory) -> None:
    topic = new_topic(partitions=2)
    records = "".join(
        json.dumps({"value": f"v{number}", "timestamp": 1_000_000 + number}) + "\n" for number in range(10)
    )
    barnabas("produce", topic, "--json", "--partition", "1", stdin=records.encode())
    assert barnabas("consume", topic, "--until", "1000002").split() == ["v0", "v1"]
    assert barnabas("consume", topic, "--since", "1000004", "--until", "1000006").split() == ["v4", "v5"]
    assert barnabas("consume", topic, "--to-end", "--offset", "-2").split() == ["v8", "v9"]
    assert barnabas("consume", topic, "--to-end", "--since", "10m") == ""
    assert barnabas("consume", topic, "--to-end", "--partition", "0") == ""


def test_the_file_of_settings_counts_and_is_checked(barnabas: Barnabas, topic: str, tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("acks=1\nmax.poll.records=1\nkey.serializer=org.example.OurSerializer\n")
    barnabas("produce", topic, "--command-config", str(settings), stdin=b"a\nb\n")
    assert barnabas("consume", topic, "--to-end", "--command-config", str(settings)) == "a\nb\n"
    settings.write_text("linger.mss=5\n")
    told = barnabas("topic", "list", "--command-config", str(settings), code=2)
    assert told.endswith("unknown configuration key 'linger.mss'; did you mean linger.ms?\n")
    settings.write_text("acks=many\n")
    assert "acks" in barnabas("topic", "list", "--command-config", str(settings), code=2)


def test_perf_measures_each_way(barnabas: Barnabas, topic: str) -> None:
    written = json.loads(
        barnabas("perf", "produce", topic, "--records", "300", "--size", "50", "--json", "--batch-size", "1")
    )
    assert (written["records"], written["bytes"]) == (300, 15_000)
    assert 0 < written["latency_ms"]["p50"] <= written["latency_ms"]["p99"] <= written["latency_ms"]["max"]
    read = json.loads(barnabas("perf", "consume", topic, "--json"))
    assert (read["records"], read["bytes"]) == (300, 15_000)
    for rate in ((), ("--rate", "500")):
        there = barnabas("perf", "end-to-end", topic, "--records", "20", *rate, "--plot")
        assert "send to consumer, p99" in there
        assert "█" in there
    assert "a value holds its time" in barnabas.fail("perf", "end-to-end", topic, "--size", "4")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("topic", "list"), b"barnabas: waiting for "),
        (("consume", "{topic}"), b"barnabas: no answer from the brokers"),
        (("produce", "{topic}"), b"barnabas: waiting for the acknowledgement of 1 record "),
        (("perf", "end-to-end", "{topic}", "--records", "1000000"), b" records  0/s"),
    ],
)
def test_no_command_is_silent_at_a_broker_that_hangs(command: tuple[str, ...], words: bytes) -> None:
    with run_broker() as broker:
        broker.create_topic("orders")
        barnabas = Barnabas(broker.bootstrap)
        barnabas("produce", "orders", stdin=b"one\n")
        is_early = command[0] == "topic"
        if is_early:
            broker.pause()
        arguments = [word.format(topic="orders") for word in command]
        if command[0] == "consume":
            arguments += ["--from-beginning"]
        with barnabas.start(*arguments) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            if command[0] == "consume":
                assert process.stdout.readline() == b"one\n"
            if command[0] == "perf":
                assert b" records " in process.stderr.readline()
            if command[0] == "produce":
                process.stdin.write(b"two\n")
                process.stdin.flush()
                assert barnabas("consume", "orders", "--from-beginning", "--count", "2") == "one\ntwo\n"
            if not is_early:
                broker.pause()
            if command[0] == "produce":
                process.stdin.write(b"three\n")
                process.stdin.flush()
            line = process.stderr.readline()
            while command[0] == "perf" and words not in line:
                line = process.stderr.readline()
            assert words in line
            process.send_signal(signal.SIGINT)
            process.stdin.close()
            assert process.wait(PATIENCE_S) == 130
            assert b"Traceback" not in process.stderr.read()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("command", [("metrics", "alerts"), ("--help",), ("consume", "{topic}", "--to-end")])
def test_a_full_disk_is_a_line_and_no_traceback(
    barnabas: Barnabas, topic: str, command: tuple[str, ...]
) -> None:
    barnabas("produce", topic, stdin=b"one\n")
    with Path("/dev/full").open("wb") as full:
        process = barnabas.start(*(word.format(topic=topic) for word in command), stdout=full)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert said == b"barnabas: cannot write the output: No space left on device\n"
    assert process.returncode == 1


@pytest.mark.parametrize("command", ["topic list", "consume {topic} --to-end"])
def test_a_closed_output_is_no_fault(barnabas: Barnabas, topic: str, command: str) -> None:
    barnabas("produce", topic, stdin=b"one\n")
    process = barnabas.start(*command.format(topic=topic).split(), closed=(0, 1))
    _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_broker_that_cannot_say_that_it_is_ready_stops(barnabas: Barnabas, tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path), "--listener", "PLAINTEXT://127.0.0.1:0")
    with Path("/dev/full").open("wb") as full:
        process = barnabas.start("start", *where, stdout=full)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert b"barnabas: cannot write the ready line: No space left on device\n" in said
    assert b"resigns as the controller" in said
    assert b"Traceback" not in said
    assert process.returncode == 1
