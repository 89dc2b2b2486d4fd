"""docs/SPARK.md: its examples, run one after the other in one session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from confluent_kafka import Consumer, Producer

from barnabas.cli.main import cli
from tests.support.broker import BarnabasBroker
from tests.support.fixtures import TopicFactory
from tests.support.pages import REPOSITORY, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = "docs/SPARK.md"


def example(word: str) -> str:
    (found,) = (each.text for each in blocks(PAGE, "python") if word in each.text)
    return found


def run(code: str, **names: Any) -> dict[str, Any]:
    exec(compile(code, PAGE, "exec"), names)
    return names


def value_of(code: str, name: str, **names: Any) -> Any:
    """An expression of the page, given a name."""
    return run(code if f"{name} = " in code else f"{name} = {code}", **names)[name]


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(5):
        producer.produce(topic, str(number).encode())
    assert producer.flush(60) == 0


def test_a_session_is_made_as_the_page_says(spark: SparkSession) -> None:
    assert run(example("SparkSession.builder"))["spark"] is spark, "the session that is there"


def test_rows_are_read_and_written(
    spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    events, rows, clean = new_topic(1), new_topic(1), new_topic(1)
    fill(bootstrap, events)
    here = {"localhost:9092": bootstrap, '"events"': f'"{events}"', '"rows"': f'"{rows}"',
            '"clean"': f'"{clean}"', "/data/checkpoints": str(tmp_path)}  # fmt: skip

    def moved(code: str) -> str:
        for shown, found in here.items():
            code = code.replace(shown, found)
        return code

    first = next(each.text for each in blocks(PAGE, "python") if "readStream" in each.text)
    stream = value_of(moved(first.replace(".load()", '.option("startingOffsets", "earliest").load()')), "df",
                      spark=spark)  # fmt: skip
    assert stream.isStreaming

    auto = moved(example('engine="auto"'))
    assert value_of(auto, "df", spark=spark).count() == 5

    run(moved(example("spark.range(10)")), spark=spark)
    assert sorted(values(bootstrap, rows, 10)) == [f"row {number}".encode() for number in range(10)]

    code = moved(example("from pyspark_barnabas import exactly_once"))
    code = code.replace("(\n    exactly_once", "query = (\n    exactly_once", 1)
    code = code.replace(".start()", ".trigger(availableNow=True).start()")
    query = value_of(code, "query", df=stream)
    query.awaitTermination(600)
    assert query.exception() is None
    assert sorted(values(bootstrap, clean, 5)) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_manifest_is_exported_and_read(spark: SparkSession, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from tests.support.broker import running

    (export,) = (each.text.strip() for each in blocks(PAGE, "") if "log manifest" in each.text)
    settings = {"log.segment.bytes": "200"}
    with running(BarnabasBroker(tmp_path / "data", settings=settings)) as broker:
        for _ in range(5):
            fill(broker.bootstrap, "events")
        words = export.replace("localhost:9092", broker.bootstrap).split()[1:]
        words[words.index("/var/lib/barnabas")] = str(tmp_path / "data")
        ended = CliRunner().invoke(cli, words)
        assert ended.exit_code == 0, ended.output
        read = example("read_segments").replace("/var/lib/barnabas", str(tmp_path / "data"))
        rows = value_of(read, "df", spark=spark, pyspark_barnabas=__import__("pyspark_barnabas")).count()
    assert 0 < rows <= 25


def test_a_secured_source_takes_the_options_of_the_page(spark: SparkSession, tmp_path: Path) -> None:
    """No broker answers: what is shown is that each option is known and complete."""
    (tmp_path / "secrets").write_text("password=secret")  # the processes of the session have its environment
    code = example("ScramLoginModule").replace("env:KAFKA_PASSWORD", f"file:{tmp_path / 'secrets'}:password")
    code = code.replace("broker:9094", "127.0.0.1:1")
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    code = code.replace("/etc/kafka/ca.pem", str(tmp_path / "ca.pem"))
    with pytest.raises(Exception, match=r"no broker answers at 127\.0\.0\.1:1"):
        value_of(code, "df", spark=spark).count()


def values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"of-{topic}",
                         "auto.offset.reset": "earliest", "isolation.level": "read_committed"})  # fmt: skip
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None, f"{len(found)} of {count} records"
        value = message.value()
        assert isinstance(value, bytes)
        found.append(value)
    consumer.close()
    return found


def test_the_setting_that_finds_spark_is_a_directory() -> None:
    page = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    (program,) = [each.split('"')[0] for each in page.split('SPARK_HOME=$(python -c "')[1:]]
    assert "print(home())" in program
    found = run(program.replace("print(home())", "found = str(home())"))["found"]
    assert (Path(found) / "jars").is_dir()
