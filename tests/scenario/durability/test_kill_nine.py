"""Fifty kills under load: nothing acknowledged is lost, doubled, moved or reordered.

An idempotent producer in a process of its own writes without pause while the broker is killed
with SIGKILL and started again on the same directory. In some of the cycles, files that can be
derived from the log are deleted or damaged while the broker is down, or the log gets a torn tail.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from tests.support.broker import REPOSITORY, Broker, partition_directory
from tests.support.fixtures import chosen_broker, create_topic
from tests.support.process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC = "survivor"
ACKNOWLEDGED_PER_CYCLE = 2_000
PROGRESS_TIMEOUT_S = 120.0
RUN_ON_S_MAX = 0.3
"""Longest time of a cycle beyond the awaited progress: kills come at no particular moment."""


class Acknowledged:
    """The producer's notes, read as they grow."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self._rest = b""
        self.offsets: dict[int, int] = {}

    def refresh(self) -> int:
        if self._path.exists():
            with self._path.open("rb") as notes:
                notes.seek(self._read_bytes)
                data = notes.read()
            self._read_bytes += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                number, offset = map(int, line.split())
                assert number not in self.offsets, f"record {number} was acknowledged twice"
                self.offsets[number] = offset
        return len(self.offsets)


class Siege:
    """A broker under kill after kill, and the producer that keeps writing to it."""

    def __init__(self, broker: Broker, notes: Path, seed: int) -> None:
        self.broker = broker
        self.chance = random.Random(seed)
        self.acknowledged = Acknowledged(notes)
        command = [sys.executable, "-m", "tests.scenario.durability.steady_producer"]
        self.producer = ServerProcess(
            [*command, broker.bootstrap, TOPIC, str(notes)], working_directory=REPOSITORY
        )

    def cycle(self, damage: Callable[[Path, random.Random], None] | None = None) -> None:
        """Load, kill, damage, restart."""
        self.await_progress()
        time.sleep(self.chance.uniform(0, RUN_ON_S_MAX))
        self.broker.kill()
        if damage is not None:
            damage(partition_directory(self.broker, TOPIC), self.chance)
        self.broker.start()

    def await_progress(self) -> None:
        goal = self.acknowledged.refresh() + ACKNOWLEDGED_PER_CYCLE
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while self.acknowledged.refresh() < goal:
            assert self.producer.is_running, f"the producer gave up:\n{self.producer.output_text()}"
            assert time.monotonic() < deadline, f"no progress after a restart:\n{self.broker.output_text()}"
            time.sleep(0.01)

    def end(self) -> None:
        code = self.producer.stop(timeout_s=180.0)
        assert code == 0, f"the producer met an error:\n{self.producer.output_text()}"
        self.acknowledged.refresh()


def read_numbers(bootstrap: str) -> list[int]:
    """The number in each record, by offset; the offsets must have no gap."""
    receiver = assigned_consumer(bootstrap)
    receiver.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    numbers: list[int] = []
    try:
        while True:
            message = receiver.poll(60.0)
            assert message is not None, f"silence after {len(numbers)} records"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return numbers
            assert message.offset() == len(numbers), "a gap in the offsets"
            numbers.append(number_in(message))
    finally:
        receiver.close()


def number_in(message: Message) -> int:
    value = message.value()
    assert value is not None
    return int(value.split(b" ", 1)[0])


def read_one(receiver: Consumer, offset: int) -> int:
    receiver.assign([TopicPartition(TOPIC, 0, offset)])
    message = receiver.poll(60.0)
    assert message is not None
    assert message.error() is None
    assert message.offset() == offset
    return number_in(message)


def assigned_consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditor",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "auto.offset.reset": "error",
        }
    )


def assert_nothing_lost(siege: Siege) -> None:
    numbers = read_numbers(siege.broker.bootstrap)
    assert numbers == list(range(len(numbers))), "lost, doubled or reordered"
    acknowledged = siege.acknowledged.offsets
    assert len(acknowledged) == len(numbers), "everything sent was acknowledged before the producer ended"
    moved = [number for number, offset in acknowledged.items() if offset != number]
    assert not moved, f"acknowledged at other offsets: {moved[:10]}"
    receiver = assigned_consumer(siege.broker.bootstrap)
    try:
        for offset in siege.chance.sample(range(len(numbers)), 20):
            assert read_one(receiver, offset) == offset
    finally:
        receiver.close()


@pytest.fixture
def siege(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Siege]:
    broker = chosen_broker(request.config, tmp_path)
    segment_bytes = 1 << 20 if broker.name == "kafka" else 1 << 18
    broker.start()
    try:
        create_topic(broker, TOPIC, configs={"segment.bytes": str(segment_bytes)})
        started = Siege(broker, tmp_path / "acknowledged", seed=9)
        try:
            yield started
        finally:
            started.producer.kill()
    finally:
        broker.kill()


def delete_indexes(directory: Path, chance: random.Random) -> None:
    for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
        path.unlink()


def damage_the_last_indexes(directory: Path, chance: random.Random) -> None:
    for suffix in ("index", "timeindex"):
        path = max(directory.glob(f"*.{suffix}"))
        path.write_bytes(chance.randbytes(max(24, path.stat().st_size)))


def cut_indexes_short(directory: Path, chance: random.Random) -> None:
    for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
        with path.open("r+b") as index:
            index.truncate(path.stat().st_size // 2 | 1)


def delete_snapshots(directory: Path, chance: random.Random) -> None:
    for path in directory.glob("*.snapshot"):
        path.unlink()


def damage_snapshots(directory: Path, chance: random.Random) -> None:
    for path in directory.glob("*.snapshot"):
        path.write_bytes(chance.randbytes(path.stat().st_size))


def delete_leader_epochs(directory: Path, chance: random.Random) -> None:
    (directory / "leader-epoch-checkpoint").unlink(missing_ok=True)


def tear_the_tail(directory: Path, chance: random.Random) -> None:
    """Half a batch at the end, as a crash in the middle of a write leaves it."""
    log = max(directory.glob("*.log"))
    data = log.read_bytes()
    last = last_batch_position(data)
    batch = data[last:] or chance.randbytes(200)
    with log.open("ab") as tail:
        tail.write(batch[: chance.randrange(1, len(batch))])


def write_garbage_after_the_tail(directory: Path, chance: random.Random) -> None:
    with max(directory.glob("*.log")).open("ab") as tail:
        tail.write(chance.choice([chance.randbytes(500), bytes(4_096)]))


def last_batch_position(data: bytes) -> int:
    position = last = 0
    while position + 12 <= len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if position + size > len(data):
            break
        last, position = position, position + size
    return last


DAMAGES = (
    delete_indexes,
    tear_the_tail,
    damage_the_last_indexes,
    delete_snapshots,
    write_garbage_after_the_tail,
    cut_indexes_short,
    damage_snapshots,
    delete_leader_epochs,
)


def test_thirty_kills_lose_nothing(siege: Siege) -> None:
    for _ in range(30 if siege.broker.name == "barnabas" else 3):
        siege.cycle()
    siege.end()
    assert len(list(partition_directory(siege.broker, TOPIC).glob("*.log"))) > 2, "the log was meant to roll"
    assert_nothing_lost(siege)


def test_twenty_kills_with_damaged_files_lose_nothing(siege: Siege) -> None:
    for number in range(20 if siege.broker.name == "barnabas" else len(DAMAGES)):
        siege.cycle(DAMAGES[number % len(DAMAGES)])
    siege.end()
    assert_nothing_lost(siege)
