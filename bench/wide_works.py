"""Works that ask for many of something: partitions, connections, members, commits, transactions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from raw_load import run_load
from tests.support import wire
from tests.support.broker import Broker, cpu_seconds
from tests.support.fixtures import create_topic
from works import Figures, Scale, produce_frame

TIMEOUT_S = 60.0


def connections(broker: Broker, scale: Scale) -> Figures:
    """A thousand connections are held open while one of them works."""
    create_topic(broker, "connections")
    frame = produce_frame("connections", [bytes(100)])
    with contextlib.ExitStack() as held:
        for _ in range(scale.connections):
            connection = held.enter_context(wire.WireConnection(broker.host, broker.port))
        connection.ask(wire.API_VERSIONS, 0, b"")  # they are accepted in order: all of them are held
        run_load(broker.port, frame, depth=1, seconds=scale.seconds / 2)
        load = run_load(broker.port, frame, depth=1, seconds=scale.seconds)
    return {"connections_p99_us": load.latency.percentile_us(99)}


def group(broker: Broker, scale: Scale) -> Figures:
    """From the first `subscribe` until each member of a new group has its partition."""
    create_topic(broker, "group", partitions=scale.members)
    with _members(broker, scale.members) as members:
        begun = time.perf_counter()
        waiting = set(range(len(members)))
        while waiting:
            for at in list(waiting):
                members[at].poll(0)
                if len(members[at].assignment()) == 1:
                    waiting.discard(at)
            assert time.perf_counter() - begun < TIMEOUT_S, f"{len(waiting)} members without a partition"
        return {"group_stable_s": time.perf_counter() - begun}


@contextlib.contextmanager
def _members(broker: Broker, count: int) -> Iterator[list[Consumer]]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "crowd", "enable.auto.commit": False}
    members = [Consumer(settings) for _ in range(count)]
    try:
        for member in members:
            member.subscribe(["group"])
        yield members
    finally:
        for member in members:
            member.close()


def commits(broker: Broker, scale: Scale) -> Figures:
    """One consumer commits one offset after the other, waiting for each."""
    create_topic(broker, "commits")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "committer"})
    offsets = [TopicPartition("commits", 0, 1)]
    _until_it_works(lambda: consumer.commit(offsets=offsets, asynchronous=False))
    _times(lambda: consumer.commit(offsets=offsets, asynchronous=False), scale.seconds / 2)
    commits_s = _times(lambda: consumer.commit(offsets=offsets, asynchronous=False), scale.seconds)
    consumer.close()
    return {"commits_s": commits_s}


def _times(work: Callable[[], object], seconds: float) -> float:
    """Operations per second, one after the other."""
    count = 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        work()
        count += 1
    return count / (time.perf_counter() - begun)


def transactions(broker: Broker, scale: Scale) -> Figures:
    """Transactions of a hundred records, one after the other."""
    create_topic(broker, "transactions")
    sender = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "bench", "linger.ms": 0})
    sender.init_transactions(TIMEOUT_S)

    def transaction() -> None:
        sender.begin_transaction()
        for _ in range(100):
            sender.produce("transactions", bytes(100), partition=0)
        sender.commit_transaction(TIMEOUT_S)

    _times(transaction, scale.seconds / 2)
    return {"transactions_s": _times(transaction, scale.seconds)}


def partitions(broker: Broker, scale: Scale) -> Figures:
    """Create many, look at the idle broker, kill it, and wait until it is back."""
    begun = time.perf_counter()
    create_topic(broker, "partitions", partitions=scale.partitions)
    created_s = time.perf_counter() - begun
    time.sleep(1.0)
    before_s = cpu_seconds(broker)
    time.sleep(scale.seconds)
    idle_percent = 100 * (cpu_seconds(broker) - before_s) / scale.seconds
    broker.kill()
    begun = time.perf_counter()
    broker.start()
    return {
        "partitions_create_s": created_s,
        "partitions_idle_percent": idle_percent,
        "partitions_restart_s": time.perf_counter() - begun,
    }


def _until_it_works(attempt: object) -> None:
    """The first commit meets a coordinator that is only just being made."""
    deadline = time.perf_counter() + TIMEOUT_S
    while True:
        try:
            attempt()  # type: ignore[operator]
        except KafkaException:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
