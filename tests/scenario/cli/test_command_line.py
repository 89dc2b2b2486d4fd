"""The command line as its users run it, against a running broker."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.scenario.cli.command import Barnabas
from tests.support.broker import Broker, partition_directory
from tests.support.fixtures import TopicFactory
from tests.support.waiting import PATIENCE_S, eventually


def test_a_topic_lives_and_dies(barnabas: Barnabas) -> None:
    name = "cli-topic-life"
    assert (
        barnabas("topic", "create", name, "--partitions", "2", "--config", "retention.ms=60000")
        == f"created topic {name}\n"
    )
    assert "exist" in barnabas("topic", "create", name, code=5)
    assert barnabas("topic", "create", name, "--if-not-exists") == f"topic {name} exists already\n"
    assert name in barnabas("topic", "list").splitlines()
    (described,) = json.loads(barnabas("topic", "describe", name, "--json"))
    assert described["configs"] == {"retention.ms": "60000"}
    assert [row["partition"] for row in described["partitions"]] == [0, 1]
    assert all(row["leader"] in row["isr"] for row in described["partitions"])
    barnabas("topic", "alter", name, "--partitions", "3", "--delete-config", "retention.ms")
    (described,) = json.loads(barnabas("topic", "describe", name, "--json"))
    assert described["configs"] == {}
    assert len(described["partitions"]) == 3
    assert barnabas("topic", "delete", name) == f"deleted topic {name}\n"
    assert barnabas("topic", "delete", name, code=4) == f"barnabas: there is no topic {name}\n"
    assert barnabas("topic", "delete", name, "--if-exists") == f"there is no topic {name}\n"
    assert barnabas("topic", "describe", name, code=4) == f"barnabas: there is no topic {name}\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_written_are_lines_read(barnabas: Barnabas, topic: str, codec: str) -> None:
    lines = "".join(f"line {number}\n" for number in range(500))
    barnabas("produce", topic, "--codec", codec, stdin=lines.encode())
    assert barnabas("consume", topic, "--from-beginning", "--count", "500") == lines


def test_keys_and_headers_travel_along(barnabas: Barnabas, topic: str) -> None:
    barnabas("produce", topic, "--key-separator", ":", "--header", "from=cli", stdin=b"a:1\nb:2:3\n")
    shown = barnabas("consume", topic, "--from-beginning", "--count", "2", "--keys", "--headers")
    assert shown == "from=cli\ta\t1\nfrom=cli\tb\t2:3\n"
    assert "line 2 of standard input" in barnabas(
        "produce", topic, "--key-separator", ":", stdin=b"c:4\nd\n", code=1
    )


def test_json_goes_round(barnabas: Barnabas, new_topic: TopicFactory) -> None:
    source, target = new_topic(), new_topic()
    record = {
        "key": "k",
        "value": None,
        "timestamp": 1_700_000_000_000,
        "headers": [{"key": "h", "value": "v"}],
    }
    bare = {"key": None, "value_base64": "//8=", "timestamp": 1_700_000_000_001}
    lines = f"{json.dumps(record)}\n{json.dumps(bare)}\n"
    barnabas("produce", source, "--json", stdin=lines.encode())
    first = barnabas("consume", source, "--json", "--from-beginning", "--count", "2")
    assert json.loads(first.splitlines()[0]) == record | {"topic": source, "partition": 0, "offset": 0}
    barnabas("produce", target, "--json", stdin=first.encode())
    assert barnabas("consume", target, "--json", "--from-beginning", "--count", "2") == first.replace(
        source, target
    )


def test_reading_begins_where_it_is_told_to(barnabas: Barnabas, new_topic: TopicFactory) -> None:
    topic = new_topic(partitions=2)
    records = "".join(
        json.dumps({"value": f"v{number}", "timestamp": 1_000_000 + number}) + "\n" for number in range(10)
    )
    barnabas("produce", topic, "--json", "--partition", "1", stdin=records.encode())
    in_one = ("--partition", "1", "--timeout", "0")
    assert barnabas("consume", topic, *in_one, "--offset", "8").split() == ["v8", "v9"]
    assert barnabas("consume", topic, *in_one, "--offset", "-3").split() == ["v7", "v8", "v9"]
    assert barnabas("consume", topic, *in_one, "--timestamp", "1000009").split() == ["v9"]
    assert barnabas("consume", topic, *in_one, "--timestamp", "1970-01-01T00:16:40.008Z").split() == [
        "v8",
        "v9",
    ]
    assert barnabas("consume", topic, *in_one, "--timestamp", "2000000") == ""
    assert barnabas("consume", topic, *in_one) == ""
    assert barnabas("consume", topic, "--from-beginning", "--count", "3").split() == ["v0", "v1", "v2"]
    assert "has offsets 0 to 10, not 11" in barnabas("consume", topic, *in_one, "--offset", "11", code=1)
    assert "partitions 0 to 1, not 2" in barnabas("consume", topic, "--partition", "2", code=1)
    assert barnabas("consume", "no-such-topic", code=4) == "barnabas: there is no topic no-such-topic\n"


def test_consume_follows_until_it_is_interrupted(barnabas: Barnabas, topic: str) -> None:
    with barnabas.start("consume", topic, "--from-beginning") as reader:
        assert reader.stdout is not None
        for word in ("one", "two"):
            barnabas("produce", topic, stdin=f"{word}\n".encode())
            assert reader.stdout.readline() == f"{word}\n".encode()
        reader.send_signal(signal.SIGINT)
        stdout, stderr = reader.communicate(timeout=PATIENCE_S)
    assert (reader.returncode, stdout, stderr) == (130, b"", b"")


def test_a_place_that_is_not_there_is_told_though_nothing_is_written(barnabas: Barnabas, topic: str) -> None:
    for lines in (b"", b"one\n"):
        told = barnabas("produce", topic, "--partition", "99", stdin=lines, code=1)
        assert told == f"barnabas: {topic} has partitions 0 to 0, not 99 (INVALID_PARTITIONS)\n"
    told = barnabas("produce", "nosuchtopic", "--partition", "99", code=4)
    assert told == "barnabas: there is no topic nosuchtopic\n"
    barnabas("produce", topic, "--partition", "0")


def test_produce_sends_lines_as_they_are_typed(barnabas: Barnabas, topic: str) -> None:
    with barnabas.start("produce", topic) as writer:
        assert writer.stdin is not None
        writer.stdin.write(b"typed\n")
        writer.stdin.flush()
        assert barnabas("consume", topic, "--from-beginning", "--count", "1") == "typed\n"
        writer.send_signal(signal.SIGINT)
        _, stderr = writer.communicate(timeout=PATIENCE_S)
    assert (writer.returncode, stderr) == (130, b"")


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_writes(barnabas: Barnabas, topic: str, acks: str) -> None:
    lines = "".join(f"{number}\n" for number in range(2_000))
    barnabas("produce", topic, "--acks", acks, stdin=lines.encode())
    assert barnabas("consume", topic, "--from-beginning", "--count", "2000") == lines


def test_settings_are_shown_and_changed(barnabas: Barnabas, topic: str) -> None:
    assert barnabas("config", "set", "topic", topic, "retention.ms=5000") == f"changed topic {topic}\n"
    assert barnabas("config", "get", "topic", topic, "retention.ms") == "5000\n"
    shown = json.loads(barnabas("config", "get", "topic", topic, "--json"))
    assert shown["retention.ms"] == {"value": "5000", "source": "topic"}
    barnabas("config", "set", "topic", topic, "--delete", "retention.ms")
    assert barnabas("config", "get", "topic", topic, "retention.ms") == "604800000\n"
    assert "max.message.bytes" in barnabas("config", "get", "topic", topic, "--all")
    assert "INVALID_CONFIG" in barnabas("config", "set", "topic", topic, "no.such.key=1", code=1)
    barnabas("config", "get", "topic", topic, "no.such.key", code=4)


def test_quotas_are_set_shown_and_taken_away(barnabas: Barnabas) -> None:
    set_ = ("quota", "set", "--user", "eve", "--client-id")
    assert (
        barnabas(*set_, "app", "producer_byte_rate=1000", "request_percentage=12.5")
        == "changed the quotas of user eve, client-id app\n"
    )
    assert "default" in barnabas(*set_, "default", "consumer_byte_rate=7")
    shown = json.loads(barnabas("quota", "list", "--user", "eve", "--json"))
    assert shown == [
        {
            "entity": {"user": "eve", "client-id": "app"},
            "quotas": {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        },
        {"entity": {"user": "eve", "client-id": None}, "quotas": {"consumer_byte_rate": 7.0}},
    ]
    assert "12.5" in barnabas("quota", "list")
    barnabas("quota", "set", "--user", "eve", "producer_byte_rate=12345678")
    assert "12345678\n" in barnabas("quota", "list", "--user", "eve")
    barnabas("quota", "set", "--user", "eve", "--delete", "producer_byte_rate")
    told = barnabas("quota", "set", "--user", "User:eve", "producer_byte_rate=1", code=2)
    assert "--user takes the user name eve" in told
    barnabas(*set_, "default", "--delete", "consumer_byte_rate")
    barnabas(*set_, "app", "--delete", "producer_byte_rate", "--delete", "request_percentage")
    assert json.loads(barnabas("quota", "list", "--json")) == []
    assert "must be greater than 0" in barnabas(*set_, "app", "producer_byte_rate=0", code=1)
    assert "is not a valid IP" in barnabas(
        "quota", "set", "--ip", "nowhere", "connection_creation_rate=1", code=1
    )


def test_a_brokers_settings_are_shown(barnabas: Barnabas, topic: str) -> None:
    (described,) = json.loads(barnabas("topic", "describe", topic, "--json"))
    broker = str(described["partitions"][0]["leader"])
    assert barnabas("config", "get", "broker", broker, "message.max.bytes") == "1048588\n"
    assert "there is no broker 999" in barnabas("config", "get", "broker", "999", code=4)


def test_the_files_of_a_log_are_shown(barnabas: Barnabas, broker: Broker, topic: str) -> None:
    barnabas("produce", topic, "--key-separator", ":", "--codec", "gzip", stdin=b"k:first\nk:second\n")
    segment = partition_directory(broker, topic) / f"{0:020}.log"
    assert "baseOffset: 0 lastOffset: 1 count: 2" in barnabas("log", "dump", str(segment))
    shown = barnabas("log", "dump", "--data", str(segment))
    assert "first" in shown
    assert "second" in shown
    directory = segment.parent
    assert f"{directory} is a directory" in barnabas("log", "dump", str(directory), code=1)
    missing = segment.with_name("missing.log")
    assert barnabas("log", "dump", str(missing), code=4) == f"barnabas: there is no file {missing}\n"


def test_a_dump_ends_quietly_when_its_reader_has_enough(
    barnabas: Barnabas, broker: Broker, topic: str
) -> None:
    barnabas("produce", topic, stdin=b"a line that fills the pipe\n" * 20_000)
    segment = partition_directory(broker, topic) / f"{0:020}.log"
    process = barnabas.start("log", "dump", "--data", str(segment))
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process, process.stderr as complaints:
        assert process.stdout.readline().startswith(b"Dumping ")
        process.stdout.close()
        assert complaints.read() == b""


def test_two_brokers_do_not_share_an_address_or_a_directory(
    barnabas: Barnabas, broker: Broker, tmp_path: Path
) -> None:
    address = f"PLAINTEXT://{broker.bootstrap}"
    refused = barnabas("start", "--listener", address, "--data-dir", str(tmp_path), code=1)
    assert f"cannot listen on {broker.bootstrap}" in refused
    assert "choose another --listener" in refused
    where = ("--listener", "PLAINTEXT://127.0.0.1:0", "--data-dir", str(tmp_path / "metrics"))
    with barnabas.start("start", *where, "--metrics", broker.bootstrap) as process:
        _, complaint = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"cannot serve metrics on {broker.bootstrap}".encode() in complaint
    assert b"choose another --metrics" in complaint
    if broker.name == "barnabas":
        free = "PLAINTEXT://127.0.0.1:0"
        refused = barnabas("start", "--listener", free, "--data-dir", str(broker.data_directory), code=1)
        assert "another broker is running" in refused


def test_a_broker_starts_with_properties_of_kraft(barnabas: Barnabas, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
    )
    with barnabas.start("start", "--config", str(file), "--data-dir", str(tmp_path / "data")) as process:
        assert process.stdout is not None
        ready = process.stdout.readline().decode()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    assert ready.startswith("barnabas ready: broker 7, listeners PLAINTEXT://127.0.0.1:")
    assert "CONTROLLER" not in ready
    assert process.returncode == 0
    assert log.decode().count("settings of KRaft") == 1


def test_partitions_show_offsets_and_sizes_and_lose_their_oldest_records(
    barnabas: Barnabas, new_topic: TopicFactory
) -> None:
    topic = new_topic(partitions=2)
    lines = "".join(json.dumps({"value": "v", "timestamp": 1_000_000 + each}) + "\n" for each in range(10))
    barnabas("produce", topic, "--json", "--partition", "1", stdin=lines.encode())
    empty, full = json.loads(barnabas("topic", "offsets", topic, "--json"))
    assert empty == {"partition": 0, "start_offset": 0, "end_offset": 0, "size_bytes": 0}
    assert (full["start_offset"], full["end_offset"], full["size_bytes"] > 0) == (0, 10, True)

    one = ("records", "delete", topic, "--partition", "1", "--json")
    assert json.loads(barnabas(*one, "--before-offset", "3")) == [{"partition": 1, "start_offset": 3}]
    assert json.loads(barnabas(*one, "--before-time", "1000006")) == [{"partition": 1, "start_offset": 6}]
    assert "OFFSET_OUT_OF_RANGE" in barnabas(*one, "--before-offset", "99", code=1)
    refused = barnabas("records", "delete", topic, "--before-offset", "8", code=1)
    assert f"no record was deleted: some partitions of {topic} end before offset 8 (0 ends at 0)" in refused
    assert json.loads(barnabas("topic", "offsets", topic, "--json"))[1]["start_offset"] == 6
    everywhere = json.loads(barnabas("records", "delete", topic, "--all", "--json"))
    assert everywhere == [{"partition": 0, "start_offset": 0}, {"partition": 1, "start_offset": 10}]
    assert barnabas("topic", "offsets", topic).splitlines()[2].split()[1:3] == ["10", "10"]


def test_a_group_divides_a_topic_and_remembers_where_it_stands(
    barnabas: Barnabas, new_topic: TopicFactory
) -> None:
    topic = new_topic(partitions=2)
    for partition in ("0", "1"):
        barnabas("produce", topic, "--partition", partition, stdin=b"a\nb\nc\n")
    member = ("consume", topic, "--group", f"readers-of-{topic}", "--from-beginning")
    assert len(barnabas(*member, "--count", "4").split()) == 4
    assert len(barnabas(*member, "--count", "2").split()) == 2
    assert barnabas(*member, "--timeout", "1") == ""
    with barnabas.start(*member) as one, barnabas.start(*member) as two:
        group = f"readers-of-{topic}"

        def is_divided() -> bool:
            (about,) = json.loads(barnabas("group", "describe", group, "--json"))
            return [len(member["partitions"]) for member in about["members"]] == [1, 1]

        eventually(is_divided)
        for partition, word in (("0", b"left\n"), ("1", b"right\n")):
            barnabas("produce", topic, "--partition", partition, stdin=word)
        assert one.stdout is not None
        assert two.stdout is not None
        assert {one.stdout.readline(), two.stdout.readline()} == {b"left\n", b"right\n"}
        for reader in (one, two):
            reader.send_signal(signal.SIGINT)
        assert {reader.wait(PATIENCE_S) for reader in (one, two)} == {130}
    (about,) = json.loads(barnabas("group", "describe", group, "--json"))
    assert (about["state"], [each["lag"] for each in about["offsets"]]) == ("Empty", [0, 0])


def test_a_group_that_has_read_nothing_yet_stands_where_it_began(barnabas: Barnabas, topic: str) -> None:
    """Records written between two runs, or during a rebalance, are read by the next run."""
    member = ("consume", topic, "--group", f"readers-of-{topic}", "--timeout", "1")
    barnabas("produce", topic, stdin=b"before\n")
    assert barnabas(*member) == ""
    barnabas("produce", topic, stdin=b"after\n")
    assert barnabas(*member) == "after\n"


def test_internal_topics_are_shown_when_asked_for(barnabas: Barnabas, topic: str) -> None:
    barnabas("consume", topic, "--group", "maker-of-offsets", "--timeout", "0")
    described = {each["name"] for each in json.loads(barnabas("topic", "describe", "--json"))}
    assert topic in described
    assert not any(name.startswith("__") for name in described)
    everything = {each["name"] for each in json.loads(barnabas("topic", "describe", "--internal", "--json"))}
    assert "__consumer_offsets" in everything


def test_a_shell_completes_names(barnabas: Barnabas, topic: str) -> None:
    def complete(*words: str, typed: str) -> list[str]:
        environment = {
            "_BARNABAS_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["barnabas", *words, typed]),
            "COMP_CWORD": str(len(words) + 1),
        }
        return [line.partition(",")[2] for line in barnabas.complete(environment).split()]

    assert complete("topic", "describe", typed=topic[:-1]) == [topic]
    assert complete("consume", typed=topic) == [topic]
    assert complete("config", "get", "topic", topic, typed="retention.b") == ["retention.bytes"]
    assert complete("consume", "--bootstrap", "127.0.0.1:1", typed=topic) == []


def test_a_long_rebalance_is_announced(barnabas: Barnabas, topic: str, tmp_path: Path) -> None:
    """The broker waits a while for more members of the classic protocol; a command that is silent meanwhile
    looks stuck."""
    classic = tmp_path / "classic.properties"
    classic.write_text("group.protocol=classic\n")
    member = ("consume", topic, "--group", f"first-of-{topic}", "--command-config", str(classic))
    with barnabas.start(*member) as reader:
        assert reader.stderr is not None
        assert reader.stderr.readline().startswith(b"waiting for the rebalance of group first-of-")
        reader.send_signal(signal.SIGINT)
        assert reader.wait(PATIENCE_S) == 130
