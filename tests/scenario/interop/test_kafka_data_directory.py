"""A data directory written by Apache Kafka is opened and served by Barnabas.

All parts of a partition are in its own directory: records, indexes, producer snapshot, leader epochs, and the
topic's id in `partition.metadata`. So the broker adopts partition directories that its coordination store
does not know: topic name and partition number from the directory's name, id from the file. Here Kafka's
cluster metadata is not in the directory; `test_kafka_settings_survive` is about the settings in it.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from tests.peers.kafka import KafkaBroker
from tests.scenario.interop.test_kafka_dump_log import complaints, dump, segment_files
from tests.support import wire
from tests.support.broker import BarnabasBroker, Broker, partition_directory, running
from tests.support.fixtures import chosen_broker, create_topic
from tests.support.workload import SEGMENT_BYTES, Stored, assert_same, read_all, write_mixture

pytestmark = pytest.mark.java

PRODUCER_ID = 424_242
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
NOT_TOPICS = ("__cluster_metadata-", "__consumer_offsets-", "__transaction_state-", "__share_group_state-")
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    ".kafka_cleanshutdown",
)


NOW_MS = time.time_ns() // 1_000_000
"""A producer whose last record is older than producer.id.expiration.ms is forgotten, by Kafka as by us."""


def sequenced(sequence: int) -> bytes:
    return wire.batch(
        [b"sequenced"],
        timestamp_ms=NOW_MS,
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=sequence,
    )


def write_sequenced(broker: Broker, topic: str) -> None:
    """Five batches of one idempotent producer, by hand, so that its retries can be repeated elsewhere."""
    with wire.WireConnection(broker.host, broker.port) as connection:
        for sequence in range(5):
            assert connection.produce(topic, sequenced(sequence)) == (0, sequence)


def adoptable_copy(source: Path, target: Path) -> None:
    """Kafka's topics and checkpoints without what is Kafka's alone."""
    target.mkdir()
    for path in source.iterdir():
        if path.is_dir() and not path.name.startswith(NOT_TOPICS):
            shutil.copytree(path, target / path.name)
        elif path.name in CHECKPOINTS:
            shutil.copy(path, target / path.name)


@pytest.fixture(scope="module", params=["stopped cleanly", "killed"])
def kafkas(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Stored], str]:
    """A directory that Kafka has left, what it acknowledged in it, and the id of the mixture's topic."""
    directory = tmp_path_factory.mktemp("kafka-directory")
    broker = KafkaBroker(directory)
    with running(broker):
        create_topic(broker, "mixture", partitions=2, configs={"segment.bytes": str(SEGMENT_BYTES)})
        create_topic(broker, "sequenced")
        create_topic(broker, "empty", partitions=3)
        stored = write_mixture(broker.bootstrap, "mixture")
        write_sequenced(broker, "sequenced")
        topic_id = described_topic_id(broker.bootstrap, "mixture")
        if request.param == "killed":
            broker.kill()
    return broker.data_directory, stored, topic_id


def described_topic_id(bootstrap: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return str(admin.describe_topics(TopicCollection([topic]))[topic].result(60).topic_id)


@pytest.fixture
def adopter(kafkas: tuple[Path, list[Stored], str], tmp_path: Path) -> BarnabasBroker:
    adoptable_copy(kafkas[0], tmp_path / "data")
    return BarnabasBroker(tmp_path / "data")


def test_every_record_is_served_where_kafka_put_it(
    kafkas: tuple[Path, list[Stored], str], adopter: BarnabasBroker
) -> None:
    _, stored, topic_id = kafkas
    with running(adopter):
        admin = AdminClient({"bootstrap.servers": adopter.bootstrap})
        topics = admin.list_topics(timeout=60).topics
        counts = {name: len(topics[name].partitions) for name in ("mixture", "sequenced", "empty")}
        assert counts == {"mixture": 2, "sequenced": 1, "empty": 3}
        assert described_topic_id(adopter.bootstrap, "mixture") == topic_id
        assert_same(read_all(adopter.bootstrap, "mixture"), stored)


def test_writing_goes_on_where_kafka_stopped_and_survives_a_restart(
    kafkas: tuple[Path, list[Stored], str], adopter: BarnabasBroker
) -> None:
    _, stored, topic_id = kafkas
    with running(adopter):
        more = write_mixture(adopter.bootstrap, "mixture", rounds=1, seed=2)
        assert more[0].offset == len(stored)
    with running(adopter):
        assert described_topic_id(adopter.bootstrap, "mixture") == topic_id
        assert_same(read_all(adopter.bootstrap, "mixture"), stored + more)
    assert complaints(dump(segment_files(partition_directory(adopter, "mixture")), "--deep-iteration")) == []


def test_kafkas_producers_are_remembered(
    kafkas: tuple[Path, list[Stored], str], adopter: BarnabasBroker
) -> None:
    """A snapshot has only the last batch of each producer, so only that one's retry is known for sure."""
    with running(adopter), wire.WireConnection(adopter.host, adopter.port) as connection:
        assert connection.produce("sequenced", sequenced(4)) == (0, 4), "a retry"
        assert connection.produce("sequenced", sequenced(7))[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert connection.produce("sequenced", sequenced(5)) == (0, 5)
        assert connection.latest_offset("sequenced") == 6


def test_new_producers_get_no_id_that_kafka_gave_out(
    kafkas: tuple[Path, list[Stored], str], adopter: BarnabasBroker
) -> None:
    """A new producer with an old one's id has its first records taken for repetitions, and dropped."""
    with running(adopter), wire.WireConnection(adopter.host, adopter.port) as connection:
        ids = [connection.new_producer_id() for _ in range(20)]
    text = dump(segment_files(partition_directory(adopter, "mixture")))
    given_out = {int(number) for number in re.findall(r"producerId: (\d+)", text)}
    assert given_out
    assert given_out.isdisjoint(ids)


def test_kafka_serves_what_barnabas_wrote(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The other way round: our partition takes the place of one that a stopped Kafka has."""
    ours = chosen_broker(request.config, tmp_path / "barnabas")
    theirs = KafkaBroker(tmp_path / "kafka")
    with running(theirs):
        create_topic(theirs, "mixture", configs={"segment.bytes": str(SEGMENT_BYTES)})
    with running(ours):
        create_topic(ours, "mixture", configs={"segment.bytes": str(SEGMENT_BYTES)})
        stored = write_mixture(ours.bootstrap, "mixture")
    theirs_directory = partition_directory(theirs, "mixture")
    identity = (theirs_directory / "partition.metadata").read_bytes()
    shutil.rmtree(theirs_directory)
    shutil.copytree(partition_directory(ours, "mixture"), theirs_directory)
    (theirs_directory / "partition.metadata").write_bytes(identity)
    with running(theirs):
        with wire.WireConnection(theirs.host, theirs.port) as connection:
            assert connection.latest_offset("mixture", patience_s=60) == len(stored)
        assert_same(read_all(theirs.bootstrap, "mixture"), stored)
        # Kafka's ids of producers begin anew here and would meet those in our log: plain ones only.
        more = write_mixture(theirs.bootstrap, "mixture", rounds=1, seed=2, idempotence=[False])
        assert more[0].offset == len(stored)
