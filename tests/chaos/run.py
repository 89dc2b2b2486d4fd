"""A cluster under load while a nemesis is at work, and the checker's word on it.

    python -m tests.chaos.run --seconds 600 --brokers 5 --seed 7

Exit code 0 means that nothing was lost, duplicated, reordered or read that must not be, and that all
replicas are the same in the end. Every broker is a host of its own in a private network whose links can be
cut, with a disk that can be filled, which needs root and the command `ip`. Where these are missing the run
fails, unless it was asked to do without (`--loopback`): then it says which faults it leaves out.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cluster.shared.notices import PROCESS_VARIABLE
from barnabas.core.addressing.endpoints import Endpoint
from tests.chaos.checker import complaints_about, sent_again
from tests.chaos.direct_writing import DirectWriting
from tests.chaos.history import History, Outcome, Place, Producer
from tests.chaos.insisting import insist
from tests.chaos.leaderships import leaders_by_epoch, merge
from tests.chaos.library import (
    HANDLERS,
    LibraryCopying,
    LibraryHandling,
    LibraryWriting,
    handled_wrongly,
)
from tests.chaos.lone_transactions import LoneTransactions
from tests.chaos.namespaces import Lab, lab, why_not
from tests.chaos.nemesis import FAULTS, Fault, Scene, heal, host_of, possible
from tests.chaos.recreation import Recreating, settled_offsets
from tests.chaos.replicas import differences, partition_directories, producers
from tests.chaos.stability import undecided
from tests.chaos.verdict import MARK
from tests.chaos.workload import Copying, GroupReading, Worker, Writing, read_all
from tests.support.cluster import Cluster, ClusterBroker
from tests.support.secured_cluster import PROTOCOL, Reach, Security
from tests.support.store_process import StoreProcess
from tests.support.zookeeper import ZooKeeper

logger = logging.getLogger("chaos")

SOURCE, TARGET = "in", "out"
SINGLE = "single"
"""Written with acks=1, at each broker directly."""
LONE = "lone"
"""Of one replica; written in transactions."""
HANDLED = "handled"
"""Written by the handlers of `process`."""
TOPICS = (SOURCE, TARGET, SINGLE, LONE)
PARTITIONS = 4
BROKER_PORT, ZOOKEEPER_PORT = 9092, 2181
DISK_MIB = 256
DISK_MIB_PER_MINUTE = 32
"""Records stay until the end, and alone must not fill the disks of a long run."""
SEGMENT_BYTES = 4 << 20
"""Small, so that segments are rolled. A broker that was killed reads all that was not flushed, which is
done when a segment is rolled: with the default of a gigabyte that is the whole run."""
IN_FLIGHT = (5, 1)
"""Of each writer: what a client with one request at a time finds written twice, a broker wrote twice
(`checker.sent_again`)."""
QUIET_S = 3.0
CANNOT_RUN = 2
SETTLE_TIMEOUT_S = 240.0
END_TIMEOUT_S = 240.0

SETTINGS: Mapping[str, object] = {
    "zookeeper.session.timeout.ms": 2_000,
    "replica.lag.time.max.ms": 3_000,
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "group.initial.rebalance.delay.ms": 200,
    "log.segment.bytes": SEGMENT_BYTES,
}


class Makes(Protocol):
    """An `AdminClient`, as far as topics are made."""

    def create_topics(self, topics: list[NewTopic], /) -> Mapping[str, Future[None]]: ...


class ChaosBroker(ClusterBroker):
    """A broker, on a host of its own if there is a lab. A shared store receives the news of its end."""

    def __init__(
        self,
        broker_id: int,
        directory: Path,
        store: ZooKeeper | StoreProcess,
        place: Lab | None,
        security: Security | None,
    ) -> None:
        super().__init__(
            broker_id,
            directory,
            _named(store),
            _settings(broker_id, security),
            port=None if place is None else BROKER_PORT,
            protocol=_protocol(security),
        )
        self._lab = place
        self._process_name = ""
        self._shared = store if isinstance(store, StoreProcess) else None
        if place is not None:
            self.host = place.address(host_of(self))

    @property
    def command(self) -> list[str]:
        command = super().command
        return command if self._lab is None else self._lab.command(host_of(self), command)

    def environment(self) -> dict[str, str]:
        self._process_name = secrets.token_hex(16)
        return {PROCESS_VARIABLE: self._process_name}

    def kill(self) -> None:
        super().kill()
        if self._shared is not None:
            self._shared.report_ended(self._process_name)


def _named(store: ZooKeeper | StoreProcess) -> str:
    return str(store.socket) if isinstance(store, StoreProcess) else store.connect


def _settings(broker_id: int, security: Security | None) -> dict[str, object]:
    return {**SETTINGS, **({} if security is None else security.settings(broker_id))}


def _protocol(security: Security | None) -> str:
    return "PLAINTEXT" if security is None else PROTOCOL


class LabZooKeeper(ZooKeeper):
    def __init__(self, directory: Path, place: Lab) -> None:
        super().__init__(
            directory,
            port=ZOOKEEPER_PORT,
            host=place.address("zookeeper"),
            wrap=lambda command: place.command("zookeeper", command),
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--fault", action="append", help="only faults whose name contains this")
    parser.add_argument("--loopback", action="store_true", help="no namespaces: no cut links, no full disks")
    parser.add_argument(
        "--store",
        choices=["zookeeper", "shared"],
        help="the coordination store: ZooKeeper, or what the brokers of one machine share  [default: the"
        " second with --loopback, else the first]",
    )
    parser.add_argument("--secure", action="store_true", help="SASL inside TLS on all listeners, and rules")
    parser.add_argument(
        "--keep",
        type=Path,
        help="a directory to run in, kept afterwards; the logs of brokers only if there were complaints",
    )
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.seed = random.SystemRandom().randrange(1 << 16) if options.seed is None else options.seed
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stdout)
    hosts = ["client", "zookeeper", *(f"b{number}" for number in range(1, options.brokers + 1))]
    if options.inside:
        return _run(options, Lab(options.inside, hosts))
    if options.loopback:
        return _run(options, None)
    reason = why_not()
    if reason is not None:
        logger.error("no link can be cut here: %s; --loopback does without", reason)
        return CANNOT_RUN
    with lab(hosts) as place:
        own = [sys.executable, "-m", "tests.chaos.run", "--inside", place.prefix, "--seed", str(options.seed)]
        command = place.command("client", [*own, *(sys.argv[1:] if arguments is None else arguments)])
        inside = subprocess.Popen(command)
        try:
            return inside.wait()
        except KeyboardInterrupt:
            inside.terminate()
            return inside.wait()


def _run(options: argparse.Namespace, place: Lab | None) -> int:
    with contextlib.ExitStack() as stack:
        directory = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        directory.mkdir(parents=True, exist_ok=True)
        disks = (
            stack.enter_context(_small_disks(directory, options.brokers, options.seconds))
            if place is not None
            else []
        )
        store = _store(options, directory, place)
        stack.callback(store.kill)
        store.start()
        hosts = [place.address(host) for host in place.hosts] if place else [ClusterBroker.host]
        security = Security(directory / "certificates", hosts) if options.secure else None
        brokers = [
            ChaosBroker(number, directory / f"broker-{number}", store, place, security)
            for number in range(1, options.brokers + 1)
        ]
        cluster = Cluster(brokers, _named(store))
        stack.callback(cluster.kill)
        reach = security.reach(cluster.bootstrap) if security else Reach.in_the_clear(cluster.bootstrap)
        scene = Scene(cluster, reach, store, SOURCE, random.Random(options.seed), place, disks)
        try:
            complaints = _torment(scene, security, options)
        except BaseException as error:
            logger.info("the brokers said:\n%s", cluster.output_text())
            logger.error("%sseed %d broke off: %s", MARK, options.seed, _first_line(error))
            raise
        if complaints:
            logger.info("the brokers said:\n%s", cluster.output_text())
            if options.keep:
                # The disks are memory, and go with the run.
                for disk in disks:
                    shutil.copytree(disk, directory / "kept" / disk.name, dirs_exist_ok=True)
        # Behind the brokers' logs: a page that cuts the output keeps its end.
        logger.info("%sseed %d: %d complaints", MARK, options.seed, len(complaints))
        for complaint in complaints[:50]:
            logger.error("%s", complaint)
        for kind, count in Counter(complaint.partition(":")[0] for complaint in complaints).most_common(20):
            logger.error("%d times in all: %s", count, kind)
        left_out = [
            fault.name
            for fault in FAULTS
            if fault not in possible(scene) and (fault.store is None or isinstance(scene.store, fault.store))
        ]
        if left_out:
            logger.warning("left out, as asked for by --loopback: %s", ", ".join(left_out))
        return 1 if complaints else 0


def _store(options: argparse.Namespace, directory: Path, place: Lab | None) -> ZooKeeper | StoreProcess:
    kind = options.store or ("shared" if options.loopback else "zookeeper")
    if kind == "shared":
        return StoreProcess(directory / "coordination")
    return LabZooKeeper(directory / "zookeeper", place) if place else ZooKeeper(directory / "zookeeper")


def _first_line(error: BaseException) -> str:
    """Some messages end in the whole output of a server."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _torment(scene: Scene, security: Security | None, options: argparse.Namespace) -> list[str]:
    cluster, reach = scene.cluster, scene.reach
    cluster.start()
    if security is not None:
        security.let_the_client_do_everything(cluster.bootstrap)
    _make_topics(reach)
    history = History(copied={"copiers": (SOURCE, TARGET)})
    writers: list[Worker] = [
        Writing(f"writer-{n}", reach, SOURCE, PARTITIONS, history, in_flight=in_flight)
        for n, in_flight in enumerate(IN_FLIGHT)
    ] + [
        DirectWriting(each.id, reach, Endpoint(each.host, each.port), SINGLE, PARTITIONS, history)
        for each in cluster.brokers
    ]
    writers.append(LibraryWriting("library-writer", reach, SOURCE, PARTITIONS, history))
    readers: list[Worker] = [
        GroupReading("reader-0", reach, SOURCE, history),
        GroupReading("reader-1", reach, SOURCE, history),
    ]
    copiers: list[Worker] = [Copying(f"copier-{n}", reach, SOURCE, TARGET, history) for n in range(2)]
    copiers.append(LibraryCopying("library-copier", reach, SOURCE, TARGET, history))
    copiers += [LibraryHandling(f"handler-{n}", reach, SOURCE, HANDLED) for n in range(2)]
    copiers.append(LoneTransactions("lone", reach, LONE, PARTITIONS, history))
    recreators: list[Worker] = [Recreating("recreator", reach, history)]
    workers = [*writers, *readers, *copiers, *recreators]
    for worker in workers:
        worker.start()
    struck = _strike_until(scene, history, time.monotonic() + options.seconds, options.fault)
    logger.info("%d faults; now everything heals", struck)
    try:
        _end([*writers, *recreators])
        _wait_until_whole(scene)
        _wait_until_copied(reach, "copiers")
        _wait_until_copied(reach, HANDLERS)
        _end(readers)
        _end(copiers)
    except TimeoutError:
        for worker in workers:
            logger.info("%s", worker.where())
        raise
    history.undecided = undecided(reach, (*TOPICS, "__consumer_offsets"))
    for topic in TOPICS:
        history.final |= read_all(reach, topic, PARTITIONS, committed=False, epochs=history.epochs)
        history.final_committed |= read_all(reach, topic, PARTITIONS, committed=True)
    history.producers = _producers(scene)
    history.final_offsets = settled_offsets(reach, history.lives)
    _note_leaders(scene, history)
    _tell(history)
    rows = read_all(reach, HANDLED, PARTITIONS, committed=False)
    handled = {partition: found for (_, partition), found in rows.items()}
    return [
        *complaints_about(history), *handled_wrongly(history, SOURCE, handled), *_compare_replicas(scene)
    ]  # fmt: skip


def _strike_until(scene: Scene, history: History, deadline: float, wanted: Sequence[str] | None) -> int:
    """One fault after the other; the order is shuffled, and none comes twice before all came once."""
    struck = 0
    deck: list[Fault] = []
    time.sleep(QUIET_S)
    while time.monotonic() < deadline:
        if not deck:
            deck = [
                fault for fault in possible(scene) if not wanted or any(part in fault.name for part in wanted)
            ]
            scene.random.shuffle(deck)
        fault = deck.pop()
        logger.info("fault: %s", fault.name)
        try:
            fault.strike(scene)
            time.sleep(fault.lasts_s)
        finally:
            heal(scene)
        _note_leaders(scene, history)
        struck += 1
        time.sleep(scene.random.uniform(0.5, QUIET_S))
    return struck


def _note_leaders(scene: Scene, history: History) -> None:
    merge(history.leaders, leaders_by_epoch(scene.store.directory, TOPICS))


def _end(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.ask_to_stop()
    for worker in workers:
        worker.join(END_TIMEOUT_S)


def _make_topics(reach: Reach) -> None:
    admin = AdminClient(dict(reach.properties))
    topics = [
        NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        for name in (SOURCE, TARGET, HANDLED)
    ]
    topics.append(NewTopic(SINGLE, PARTITIONS, 3, config={"min.insync.replicas": "1"}))
    topics.append(NewTopic(LONE, PARTITIONS, 1, config={"min.insync.replicas": "1"}))
    for topic in topics:
        insist(partial(make_topic, admin, topic))


def make_topic(admin: Makes, topic: NewTopic) -> None:
    """A busy ZooKeeper may answer late: the broker says REQUEST_TIMED_OUT, and the topic may be there."""
    (made,) = admin.create_topics([topic]).values()
    try:
        made.result(30)
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _wait_until_whole(scene: Scene) -> None:
    """Every partition has all its replicas in sync."""
    admin = AdminClient({**scene.reach.properties, "log_level": 0})
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        topics = insist(lambda: admin.list_topics(timeout=20)).topics
        missing = [
            f"{name}-{at.id} (leader {at.leader}, isr {at.isrs}, replicas {at.replicas})"
            for name, topic in topics.items()
            for at in topic.partitions.values()
            if len(at.isrs) < len(at.replicas) or at.leader < 0
        ]
        if not missing:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"not whole after {SETTLE_TIMEOUT_S} s: {missing}")
        time.sleep(0.2)


def _wait_until_copied(reach: Reach, group: str) -> None:
    """The members of a group have committed the end of their input. They may have much to catch up with: they
    are stuck when they get no further."""
    consumer = Consumer({**reach.properties, "group.id": group, "log_level": 0})
    least, progressed = math.inf, time.monotonic()
    said: object = None
    try:
        while True:
            try:
                behind = _behind(consumer)
                if not behind:
                    return
                left = sum(end - max(committed, 0) for committed, end in behind.values())
                if left < least:
                    least, progressed = left, time.monotonic()
                said = behind
            except KafkaException as error:
                said = f"{error}; before that {said}"[:1_000]  # a leader may still move back to its place
            if time.monotonic() > progressed + SETTLE_TIMEOUT_S:
                raise TimeoutError(f"the copiers are stuck: {said}")
            time.sleep(0.2)
    finally:
        consumer.close()


def _behind(consumer: Consumer) -> dict[int, tuple[int, int]]:
    """Partitions whose end is not committed: what is, and the end."""
    asked = [TopicPartition(SOURCE, number) for number in range(PARTITIONS)]
    committed = {each.partition: each for each in consumer.committed(asked, timeout=20)}
    ends = {each.partition: consumer.get_watermark_offsets(each, timeout=20)[1] for each in asked}
    return {
        number: (each.offset, ends[number])
        for number, each in committed.items()
        if each.error is not None or each.offset < ends[number]
    }


def _producers(scene: Scene) -> dict[Place, Producer]:
    roots = {broker.id: broker.data_directory for broker in scene.cluster.brokers}
    found: dict[Place, Producer] = {}
    for topic in (SOURCE, TARGET):
        for partition in range(PARTITIONS):
            for directory in list(partition_directories(roots, topic, partition).values())[:1]:
                found |= producers(directory, topic, partition)
    return found


def _compare_replicas(scene: Scene) -> list[str]:
    roots = {broker.id: broker.data_directory for broker in scene.cluster.brokers}
    return [
        complaint
        for topic in (SOURCE, TARGET, SINGLE)
        for partition in range(PARTITIONS)
        for complaint in differences(partition_directories(roots, topic, partition))
    ]


def _tell(history: History) -> None:
    acknowledged = sum(write.outcome is Outcome.ACKNOWLEDGED for write in history.writes)
    committed = sum(each.outcome is Outcome.ACKNOWLEDGED for each in history.transactions)
    seen = sum(len(reading.seen) for reading in history.readings)
    logger.info(
        "%d of %d writes acknowledged, %d records read by the group, %d of %d transactions committed,"
        " a topic deleted %d times with the offsets of %d groups",
        acknowledged,
        len(history.writes),
        seen,
        committed,
        len(history.transactions),
        sum(life.is_over for life in history.lives),
        sum(len(life.groups) for life in history.lives if life.is_over),
    )
    if again := sent_again(history):
        logger.info("%d values were sent again by their client under a new epoch", len(again))


@contextlib.contextmanager
def _small_disks(directory: Path, brokers: int, seconds: float) -> Iterator[list[Path]]:
    """A disk of its own for each broker, small enough to be filled."""
    mounted: list[Path] = []
    try:
        for number in range(1, brokers + 1):
            disk = directory / f"broker-{number}"
            disk.mkdir(parents=True, exist_ok=True)
            size = f"size={DISK_MIB + int(DISK_MIB_PER_MINUTE * seconds / 60)}m"
            made = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)], capture_output=True, check=False
            )
            if made.returncode:
                raise RuntimeError(f"no small disk: {made.stderr.decode(errors='replace').strip()}")
            mounted.append(disk)
        yield mounted
    finally:
        for disk in mounted:
            subprocess.run(["umount", "--lazy", str(disk)], check=False)


def _interrupt_once(*_: object) -> NoReturn:
    """A run that is ended stops its brokers, unmounts its disks and gives its verdict, undisturbed."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _interrupt_once)
    signal.signal(signal.SIGTERM, _interrupt_once)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
