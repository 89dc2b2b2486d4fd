"""Reactions of Python's Kafka clients to faults of the test kit, each as the client is known to react.

- A response is lost, before it or in its middle: an idempotent producer has the record stored once.
- The leader has moved, or is moving: the producer sends again.
- The broker is slow: the producer gives up after its own timeout.
- A zombie: another producer has the transactional id, and the first cannot commit.
- A member was fenced, or the clock passed its session: it cannot commit, and joins again.
- The broker restarts: a producer with open connections goes on.
- A record is refused for good, or the disk is full: the producer reports it, and does not try for ever.
- The token has expired: the producer authenticates with another one, and goes on.
- The leader is unclean: the producer goes on, and the records that were lost stay lost.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as TokenProvider

from barnabas import client as own
from barnabas.testing.broker import RunningBroker, run_broker
from barnabas.testing.cluster import run_cluster
from tests.clients.tokens import Issuer

PATIENCE_S = 30.0
JOIN_POLLS_MAX = 600


Between = Callable[[], object] | None
"""What happens between two records of one producer."""
Token = Callable[[], str] | None
"""Makes a token of OAUTHBEARER; None for a listener in plain text."""


class Client(Protocol):
    """One client library. Methods return the name of the error, or None."""

    slow_broker_error: str
    zombie_error: str
    commit_error: str
    poison_error: str

    async def publish(
        self, bootstrap: str, topic: str, timeout_ms: int, between: Between = None, token: Token = None
    ) -> str | None:
        """Send one record with idempotence, and another one after `between`, if it is given."""
        ...

    async def commit_as_zombie(
        self, bootstrap: str, topic: str, transactional_id: str, take_over: Callable[[], Awaitable[None]]
    ) -> str | None:
        """Write in a transaction, let another producer take over, and commit."""
        ...

    async def commit_as_fenced(
        self, bootstrap: str, topic: str, group: str, fence: Callable[[], Awaitable[None]]
    ) -> str | None:
        """Join, read one record, be fenced, commit, and read on until the group has it again."""
        ...


def named(error: BaseException) -> str:
    return type(error).__name__


@contextmanager
def token_file(token: Token) -> Iterator[Path]:
    """A file that a client reads for each authentication."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "token"
        write_token(file, token)
        yield file


def write_token(file: Path, token: Token) -> None:
    if token is not None:
        file.write_text(token())


class Own:
    slow_broker_error = "RequestTimedOut"
    zombie_error = "ProducerFenced"
    commit_error = "CommitFailed"
    poison_error = "InvalidRecord"

    async def publish(
        self, bootstrap: str, topic: str, timeout_ms: int, between: Between = None, token: Token = None
    ) -> str | None:
        with token_file(token) as file:
            return await self._publish(bootstrap, topic, timeout_ms, between, token, file)

    async def _publish(
        self, bootstrap: str, topic: str, timeout_ms: int, between: Between, token: Token, file: Path
    ) -> str | None:
        login: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": file.as_uri(),
        }  # fmt: skip
        async with own.Producer(
            bootstrap, delivery_timeout_ms=timeout_ms, request_timeout_ms=min(timeout_ms, 5_000),
            linger_ms=0, **({} if token is None else login),
        ) as producer:  # fmt: skip
            try:
                await producer.publish(topic, b"one")
                if between is not None:
                    await asyncio.to_thread(between)
                    write_token(file, token)
                    await producer.publish(topic, b"two")
            except own.KafkaError as error:
                return named(error)
        return None

    async def commit_as_zombie(
        self, bootstrap: str, topic: str, transactional_id: str, take_over: Callable[[], Awaitable[None]]
    ) -> str | None:
        async with own.Producer(bootstrap, transactional_id=transactional_id) as producer:
            try:
                async with producer.transaction():
                    await producer.publish(topic, b"zombie")
                    await take_over()
            except own.KafkaError as error:
                return named(error)
        return None

    async def commit_as_fenced(
        self, bootstrap: str, topic: str, group: str, fence: Callable[[], Awaitable[None]]
    ) -> str | None:
        failed = None
        async with own.Consumer(
            bootstrap, group=group, topics=[topic], auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            await consumer.get_one()
            await fence()
            try:
                await consumer.commit()
            except (own.KafkaError, own.CommitFailed) as error:
                failed = named(error)
            await consumer.get_one()  # the same record, after it has joined again
        return failed


class Confluent:
    slow_broker_error = "_MSG_TIMED_OUT"
    zombie_error = "_FENCED"
    commit_error = "UNKNOWN_MEMBER_ID"
    poison_error = "INVALID_RECORD"

    async def publish(
        self, bootstrap: str, topic: str, timeout_ms: int, between: Between = None, token: Token = None
    ) -> str | None:
        return await asyncio.to_thread(self._publish, bootstrap, topic, timeout_ms, between, token)

    def _publish(
        self, bootstrap: str, topic: str, timeout_ms: int, between: Between, token: Token
    ) -> str | None:
        failed: list[str] = []
        login = {} if token is None else {
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
            # It renews a token by its own clock, in the calls of flush.
            "oauth_cb": lambda _: (token(), time.time() + 3),
        }  # fmt: skip
        producer = ConfluentProducer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "retry.backoff.ms": 10,
            "message.timeout.ms": timeout_ms, "log_level": 0, **login,
        })  # fmt: skip

        def send(value: bytes) -> None:
            producer.produce(
                topic, value, on_delivery=lambda error, _: failed.append(error.name()) if error else None
            )
            assert producer.flush(PATIENCE_S) == 0

        send(b"one")
        if between is not None:
            between()
            send(b"two")
        return failed[0] if failed else None

    async def commit_as_zombie(
        self, bootstrap: str, topic: str, transactional_id: str, take_over: Callable[[], Awaitable[None]]
    ) -> str | None:
        producer = ConfluentProducer({
            "bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0,
        })  # fmt: skip
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(topic, b"zombie")
        producer.flush(PATIENCE_S)
        await take_over()
        return await asyncio.to_thread(self._refused, lambda: producer.commit_transaction(PATIENCE_S))

    async def commit_as_fenced(
        self, bootstrap: str, topic: str, group: str, fence: Callable[[], Awaitable[None]]
    ) -> str | None:
        consumer = ConfluentConsumer({
            "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "log_level": 0,
        })  # fmt: skip
        consumer.subscribe([topic])
        await asyncio.to_thread(self._read_one, consumer)
        await fence()
        failed = await asyncio.to_thread(self._refused, lambda: consumer.commit(asynchronous=False))
        await asyncio.to_thread(self._read_one, consumer)
        consumer.close()
        return failed

    def _read_one(self, consumer: ConfluentConsumer) -> None:
        for _ in range(JOIN_POLLS_MAX):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                return
        raise AssertionError("no record came")

    def _refused(self, work: Callable[[], object]) -> str | None:
        try:
            work()
        except KafkaException as error:
            return str(error.args[0].name())
        return None


class Aiokafka:
    slow_broker_error = "KafkaTimeoutError"
    zombie_error = "ProducerFenced"
    commit_error = "CommitFailedError"
    poison_error = "UnknownError"  # it has no class for this code

    async def publish(
        self, bootstrap: str, topic: str, timeout_ms: int, between: Between = None, token: Token = None
    ) -> str | None:
        class Tokens(AioTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                assert token is not None
                return token()

        login = {
            "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Tokens(),
        }  # fmt: skip
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, request_timeout_ms=timeout_ms,
            retry_backoff_ms=10, **({} if token is None else login),
        )  # fmt: skip
        await producer.start()
        try:
            await asyncio.wait_for(producer.send_and_wait(topic, b"one"), 2 * timeout_ms / 1_000)
            if between is not None:
                await asyncio.to_thread(between)
                await asyncio.wait_for(producer.send_and_wait(topic, b"two"), 2 * timeout_ms / 1_000)
        except TimeoutError:
            return "KafkaTimeoutError"  # an idempotent producer of aiokafka tries for ever
        except Exception as error:
            return named(error)
        finally:
            stopping = asyncio.ensure_future(producer.stop())
            done, _ = await asyncio.wait([stopping], timeout=3)
            if not done:
                stopping.cancel()
                await asyncio.gather(stopping, return_exceptions=True)
                await producer.client.close()
        return None

    async def commit_as_zombie(
        self, bootstrap: str, topic: str, transactional_id: str, take_over: Callable[[], Awaitable[None]]
    ) -> str | None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id
        ) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"zombie")
            await take_over()
            try:
                await producer.commit_transaction()
            except Exception as error:
                return named(error)
        return None

    async def commit_as_fenced(
        self, bootstrap: str, topic: str, group: str, fence: Callable[[], Awaitable[None]]
    ) -> str | None:
        failed = None
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
            enable_auto_commit=False, heartbeat_interval_ms=200, retry_backoff_ms=20,
        ) as consumer:  # fmt: skip
            await consumer.getone()
            await fence()
            try:
                await consumer.commit()
            except Exception as error:
                failed = named(error)
            await asyncio.wait_for(consumer.getone(), PATIENCE_S)
        return failed


class KafkaPython:
    slow_broker_error = "KafkaTimeoutError"
    zombie_error = "ProducerFencedError"
    commit_error = "CommitFailedError"
    poison_error = "InvalidRecordError"

    async def publish(
        self, bootstrap: str, topic: str, timeout_ms: int, between: Between = None, token: Token = None
    ) -> str | None:
        return await asyncio.to_thread(self._publish, bootstrap, topic, timeout_ms, between, token)

    def _publish(
        self, bootstrap: str, topic: str, timeout_ms: int, between: Between, token: Token
    ) -> str | None:
        class Tokens(TokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                assert token is not None
                return token()

        login = {
            "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Tokens(),
        }  # fmt: skip
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, delivery_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms // 2, linger_ms=0, retry_backoff_ms=10,
            **({} if token is None else login),
        )  # fmt: skip
        try:
            producer.send(topic, b"one").get(PATIENCE_S)
            if between is not None:
                between()
                producer.send(topic, b"two").get(PATIENCE_S)
        except Exception as error:
            return named(error)
        finally:
            producer.close(1)
        return None

    async def commit_as_zombie(
        self, bootstrap: str, topic: str, transactional_id: str, take_over: Callable[[], Awaitable[None]]
    ) -> str | None:
        producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        try:
            await asyncio.to_thread(self._begin, producer, topic)
            await take_over()
            await asyncio.to_thread(producer.commit_transaction)
        except Exception as error:
            return named(error)
        finally:
            await asyncio.to_thread(producer.close, 1)
        return None

    def _begin(self, producer: KafkaProducer, topic: str) -> None:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"zombie").get(PATIENCE_S)

    async def commit_as_fenced(
        self, bootstrap: str, topic: str, group: str, fence: Callable[[], Awaitable[None]]
    ) -> str | None:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
            enable_auto_commit=False, heartbeat_interval_ms=200, retry_backoff_ms=20,
        )  # fmt: skip
        try:
            # A leader that joins before it has the metadata of the topic assigns nothing, and stays so.
            await asyncio.to_thread(consumer.partitions_for_topic, topic)
            consumer.subscribe([topic])
            await asyncio.to_thread(self._read_one, consumer)
            await fence()
            failed = None
            try:
                await asyncio.to_thread(consumer.commit)
            except Exception as error:
                failed = named(error)
            await asyncio.to_thread(self._read_one, consumer)
            return failed
        finally:
            await asyncio.to_thread(consumer.close)

    def _read_one(self, consumer: KafkaConsumer) -> None:
        for _ in range(JOIN_POLLS_MAX):
            if consumer.poll(timeout_ms=100):
                return
        raise AssertionError("no record came")


pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""kafka-python does not close the sockets of connections that were refused."""
CLIENTS: list[Any] = [Own(), Confluent(), Aiokafka(), KafkaPython()]


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBroker]:
    with run_broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: RunningBroker) -> Iterator[RunningBroker]:
    yield shared
    shared.faults.clear()


@pytest.fixture(autouse=True, scope="module")
def _sockets_left_behind() -> Iterator[None]:
    """Sockets that kafka-python leaves are collected here, not in a test of another module. Its log lines
    would keep them: pytest holds the lines of a test, with their arguments, until the next one begins.
    """
    log = logging.getLogger("kafka")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    yield
    log.setLevel(before)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(params=CLIENTS, ids=[type(each).__name__.lower() for each in CLIENTS])
def client(request: pytest.FixtureRequest) -> Client:
    chosen: Client = request.param
    return chosen


@pytest.mark.parametrize("drop", ["before", "after", "during"])
async def test_a_lost_response_is_no_duplicate(broker: RunningBroker, client: Client, drop: Any) -> None:
    topic = await asyncio.to_thread(broker.create_topic)
    lost = broker.faults.add(api="Produce", topic=topic, drop=drop, times=1)
    assert await client.publish(broker.bootstrap, topic, 20_000) is None
    assert lost.hits == 1
    assert await asyncio.to_thread(broker.values, topic) == [b"one"]


async def test_a_moved_leader_is_found_again(broker: RunningBroker, client: Client) -> None:
    topic = await asyncio.to_thread(broker.create_topic)
    moved = broker.faults.add(api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2)
    assert await client.publish(broker.bootstrap, topic, 20_000) is None
    assert moved.hits == 2
    assert await asyncio.to_thread(broker.values, topic) == [b"one"]


async def test_a_slow_broker_runs_into_the_clients_timeout(broker: RunningBroker, client: Client) -> None:
    topic = await asyncio.to_thread(broker.create_topic)
    broker.faults.add(api="Produce", topic=topic, delay="60s")
    assert await client.publish(broker.bootstrap, topic, 1_000) == client.slow_broker_error


async def test_a_zombie_cannot_commit(broker: RunningBroker, client: Client) -> None:
    topic = await asyncio.to_thread(broker.create_topic)

    async def take_over() -> None:
        await asyncio.to_thread(broker.fence_producer, topic)

    assert await client.commit_as_zombie(broker.bootstrap, topic, topic, take_over) == client.zombie_error
    assert await asyncio.to_thread(lambda: broker.values(topic, committed=True)) == []


async def test_a_fenced_member_joins_again(broker: RunningBroker, client: Client) -> None:
    topic = await asyncio.to_thread(broker.create_topic)
    assert await Own().publish(broker.bootstrap, topic, 20_000) is None

    async def fence() -> None:
        assert await asyncio.to_thread(broker.fence_members, topic) == 1

    assert await client.commit_as_fenced(broker.bootstrap, topic, topic, fence) == client.commit_error
    assert await asyncio.to_thread(broker.committed, topic) == {}


async def test_a_member_misses_its_session_when_the_clock_jumps(client: Client) -> None:
    with run_broker(time="virtual") as broker:
        topic = await asyncio.to_thread(broker.create_topic)
        assert await Own().publish(broker.bootstrap, topic, 20_000) is None

        async def jump() -> None:
            await asyncio.to_thread(broker.time.advance, "3m")

        assert await client.commit_as_fenced(broker.bootstrap, topic, topic, jump) == client.commit_error
        assert await asyncio.to_thread(broker.committed, topic) == {}


async def test_a_producer_goes_on_after_a_restart(client: Client) -> None:
    with run_broker() as broker:
        topic = await asyncio.to_thread(broker.create_topic)
        assert await client.publish(broker.bootstrap, topic, 20_000, between=broker.restart) is None
        assert await asyncio.to_thread(broker.values, topic) == [b"one", b"two"]


async def test_an_expired_token_is_replaced(client: Client, tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    with run_broker(issuer.settings, time="virtual") as broker:
        topic = await asyncio.to_thread(broker.create_topic)
        _, by_token = broker.bootstrap.split(",")
        made: list[int] = []

        def token() -> str:
            made.append(broker.time.now_ms() // 1_000)
            return issuer.token(ends_s=made[-1] + 60)

        error = await client.publish(
            by_token, topic, 20_000, between=lambda: broker.time.advance("5m"), token=token
        )
        assert error is None
        assert await asyncio.to_thread(broker.values, topic) == [b"one", b"two"]
        assert made[-1] - made[0] >= 300, "the first token alone would not have served both records"
        assert "kafka_expired_connections_killed_total" in broker.metrics_text()


async def test_a_poison_record_is_reported(broker: RunningBroker, client: Client) -> None:
    topic = await asyncio.to_thread(broker.create_topic)
    refused = broker.faults.add(api="Produce", topic=topic, error="INVALID_RECORD")
    assert await client.publish(broker.bootstrap, topic, 20_000) == client.poison_error
    assert refused.hits == 1, "the error is final, so the record is not sent again"


async def test_a_full_disk_runs_into_the_clients_timeout(client: Client) -> None:
    with run_broker() as broker:
        topic = await asyncio.to_thread(broker.create_topic)
        broker.disk.fail("ENOSPC", under=topic)
        error = await client.publish(broker.bootstrap, topic, 1_000)
        assert error in (client.slow_broker_error, "LeaderNotAvailableError")  # aiokafka may tell why
        assert "No space left" in broker.halt_reason


async def test_an_unclean_leader_loses_what_it_missed(client: Client) -> None:
    with run_cluster(2, {"unclean.leader.election.enable": "true"}) as cluster:
        topic = await asyncio.to_thread(lambda: cluster.create_topic(replication_factor=2))
        leader = await asyncio.to_thread(cluster.leader, topic)
        follower = 3 - leader

        def replace_leader() -> None:
            cluster.kill(follower)
            cluster.wait_in_sync(topic, replicas=[leader])
            asyncio.run(Own().publish(cluster.broker(leader).bootstrap, topic, 20_000))
            assert cluster.values(topic) == [b"one", b"one"]
            cluster.kill(leader)
            cluster.restart(follower)
            assert cluster.wait_for_leader(topic, is_not=leader) == follower

        error = await client.publish(cluster.bootstrap, topic, 20_000, between=replace_leader)
        # kafka-python asks no bootstrap address again: it may know the killed broker alone.
        assert error is None or (isinstance(client, KafkaPython) and error == "KafkaTimeoutError")
        expected = [b"one"] if error else [b"one", b"two"]
        assert await asyncio.to_thread(cluster.values, topic) == expected
