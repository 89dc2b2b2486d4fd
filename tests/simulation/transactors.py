"""Producers of transactions, with the manners that producers have.

Each transaction writes to every partition, and is committed or aborted. *Plain*: partitions are named before
they are written to, and the epoch may serve the next transaction too. *Modern* (KIP-890): writes join by
themselves, and each end gives the next epoch. *Sleepy*: it stops in the middle until its transaction has been
aborted by time, and then goes on as if nothing had happened. *Hasty*: it sends a write and aborts without
waiting for the answer, so that the two overtake each other; a *latecomer* sends it later still. And now and
then a *usurper* takes the transactional id over, as a second instance of a program does.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from barnabas.client import Producer
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core import transaction_steps
from barnabas.client.core.client_errors import IllegalState, TransactionAborted
from barnabas.client.core.cluster_state import TRANSACTION, ClusterState
from barnabas.client.core.steps import ClusterUnreachable, Steps, ask, raise_for
from barnabas.client.core.transaction_steps import Transaction as Begun
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tests.chaos.history import ALL_REPLICAS, Outcome, Transaction, Value
from tests.simulation.clients import TRANSACTION_TIMEOUT_MS, Batches, World, draw_sending

PLAIN, MODERN, SLEEPY, HASTY = "plain", "modern", "sleepy", "hasty"
MANNERS = {PLAIN: 10, MODERN: 6, SLEEPY: 1, HASTY: 4}
SLEEP_S = (TRANSACTION_TIMEOUT_MS / 1_000 + 0.5, TRANSACTION_TIMEOUT_MS / 1_000 + 5.0)
HASTE_S = 0.02
USURPER_PAUSE_S = 8.0
SLOWLY_S = 1.5
LATE_S = (0.02, 0.1, 0.5)
TRANSACTIONS_OF_A_LIFE = 25


def end_and_go_on(state: ClusterState, txn: Begun, *, commit: bool) -> Steps[Begun]:
    """As producers of transaction version 2 end: the answer has the epoch of the next transaction."""
    request = EndTxnRequest(
        transactional_id=txn.transactional_id,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        committed=commit,
    )

    def attempt() -> Steps[Begun]:
        coordinator = yield from state.coordinator(txn.transactional_id, TRANSACTION)
        answer = yield from ask(coordinator, request, EndTxnResponse)
        raise_for(answer.error_code, None, f"ending {txn.transactional_id}")
        return Begun(txn.transactional_id, answer.producer_id, answer.producer_epoch, txn.timeout_ms)

    return (yield from state.retrying(attempt, unknown_topic_timeout_ms=None))


class Transactor:
    def __init__(
        self,
        world: World,
        name: str,
        transactional_id: str,
        topic: str,
        partitions: int,
        cluster: ClusterClient,
    ) -> None:
        self._world = world
        self._name = name
        self._id = transactional_id
        self._topic = topic
        self._partitions = range(partitions)
        self._cluster = cluster
        self._batches = Batches(cluster, topic, ALL_REPLICAS, world.clock.now_ms)
        self._begun: Begun | None = None
        self._is_old_epoch = False
        """Whether the last transaction was in the same epoch. Its markers may still be under way: who writes
        without having added the partition, which waits for them, would write into that transaction."""
        self._number = 0
        self._pause_s = 0.05
        self._late_s = 0.0
        self._thrown: asyncio.Task[None] | None = None

    def go_on_slowly(self, number: int) -> None:
        """With this number, where another of the same name has left off."""
        self._number = number
        self._pause_s = SLOWLY_S

    def be_late(self, late_s: float) -> None:
        """Requests that are sent without waiting leave later by this time, as if a thread of the program was
        delayed."""
        self._late_s = late_s

    async def one(self, manner: str) -> None:
        """One transaction. After any error, the next one begins with a new epoch."""
        transaction = Transaction(f"{self._name}/{self._number}")
        commit = manner != HASTY and self._world.chance.random() < 0.7
        is_ending = False
        txn = self._begun
        try:
            is_due = self._world.chance.random() < 0.3
            if txn is None or is_due or (manner == MODERN and self._is_old_epoch):
                txn = await self._cluster.run(
                    transaction_steps.begin(self._cluster.state, self._id, TRANSACTION_TIMEOUT_MS)
                )
                self._batches.identify(txn.producer_id, txn.epoch)
            self._is_old_epoch = manner != MODERN
            self._begun = None
            self._world.history.transactions.append(transaction)
            await self._write(txn, transaction, manner)
            is_ending = commit
            self._begun = await self._end(txn, manner, commit=commit)
            transaction.outcome = Outcome.ACKNOWLEDGED if commit else Outcome.REFUSED
        except (KafkaError, ClusterUnreachable):
            self._begun = None
            if not is_ending:
                transaction.outcome = Outcome.REFUSED  # it was never asked to commit
                await self._abort(txn)
        self._number += 1

    async def _write(self, txn: Begun, transaction: Transaction, manner: str) -> None:
        cluster, chance = self._cluster, self._world.chance
        self._batches.joins_by_itself = manner == MODERN
        if manner != MODERN:
            places = [TopicPartition(self._topic, each) for each in self._partitions]
            await cluster.run(transaction_steps.add_partitions(cluster.state, txn, places))
        thrown = chance.choice(self._partitions) if manner == HASTY else None
        for partition in self._partitions:
            self._number += 1
            value = Value(self._name, self._number, transaction.name)
            transaction.values.append(value)
            if partition == thrown:
                batch = self._batches.ready(value, partition, self._id)
                self._thrown = asyncio.create_task(
                    self._batches.throw(batch, partition, self._id, self._late_s)
                )
                await self._world.pause(HASTE_S)
                return
            await self._batches.write(value, partition, self._id)
            await self._world.pause(self._pause_s)
            if manner == SLEEPY and partition == 0:
                await asyncio.sleep(chance.uniform(*SLEEP_S))

    async def _abort(self, txn: Begun | None) -> None:
        """As one does after an error, though it may be that another has taken over."""
        if txn is not None:
            with suppress(KafkaError, ClusterUnreachable):
                await self._cluster.run(transaction_steps.end(self._cluster.state, txn, commit=False))

    async def _end(self, txn: Begun, manner: str, *, commit: bool) -> Begun | None:
        """State in which the next transaction may begin."""
        cluster = self._cluster
        if manner == MODERN:
            following = await cluster.run(end_and_go_on(cluster.state, txn, commit=commit))
            self._batches.identify(following.producer_id, following.epoch)
            return following
        await cluster.run(transaction_steps.end(cluster.state, txn, commit=commit))
        return None if manner == HASTY else txn


async def transact(world: World, name: str, topic: str, partitions: int) -> None:
    transactor = Transactor(world, name, name, topic, partitions, await world.open(name))
    while not world.is_over():
        (manner,) = world.chance.choices(tuple(MANNERS), tuple(MANNERS.values()))
        await transactor.one(manner)
        await world.pause(0.5)


async def come_late(world: World, name: str, topic: str, partitions: int) -> None:
    """Aborts, and by turns commits, while one of its writes is still to be sent."""
    transactor = Transactor(world, name, name, topic, partitions, await world.open(name))
    while not world.is_over():
        transactor.be_late(world.chance.uniform(0, world.chance.choice(LATE_S)))
        await transactor.one(HASTY)
        await world.pause(1.0)
        await transactor.one(PLAIN)


async def usurp(world: World, name: str, transactional_id: str, topic: str, partitions: int) -> None:
    """Takes another's transactional id, for one transaction."""
    while not world.is_over():
        await world.pause(USURPER_PAUSE_S)
        transactor = Transactor(world, name, transactional_id, topic, partitions, await world.open(name))
        transactor.go_on_slowly(int(world.loop.time() * 1_000))
        await transactor.one(world.chance.choice((PLAIN, MODERN)))


class _ChangedItsMind(Exception):
    """The application aborts."""


async def transact_by_library(world: World, name: str, topic: str, partitions: int) -> None:
    """Transactions of the client library's producer. An error that ends one leaves the producer usable, or a
    new one takes its place."""
    number = 0
    while not world.is_over():
        producer = world.producer(
            f"{name}-producer",
            transactional_id=name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            **{**draw_sending(world.chance), "max_block_ms": 15_000, "delivery_timeout_ms": 30_000},
        )
        async with producer:
            for _ in range(TRANSACTIONS_OF_A_LIFE):
                number += 1 + partitions
                transaction = Transaction(f"{name}/{number}")
                try:
                    await _one_by_library(world, producer, transaction, topic, partitions, number)
                except _ChangedItsMind:
                    pass
                except (KafkaError, ClusterUnreachable, TransactionAborted, IllegalState):
                    if world.chance.random() < 0.5:
                        break
                if world.is_over():
                    break
                await world.pause(1.0)
        await world.conduct.closed(name)


async def _one_by_library(
    world: World, producer: Producer, transaction: Transaction, topic: str, partitions: int, number: int
) -> None:
    began_s, is_ending = world.loop.time(), False
    try:
        async with producer.transaction():
            world.history.transactions.append(transaction)
            for each in range(partitions):
                value = Value(transaction.name.partition("/")[0], number + each, transaction.name)
                transaction.values.append(value)
                await producer.send(topic, value.encode(), partition=each)
                if world.chance.random() < 0.3:
                    await world.pause(SLOWLY_S)
            if world.chance.random() < 0.3:
                raise _ChangedItsMind
            is_ending = True
        transaction.outcome = Outcome.ACKNOWLEDGED
    except (KafkaError, ClusterUnreachable, TransactionAborted, IllegalState, _ChangedItsMind):
        if not is_ending:
            transaction.outcome = Outcome.REFUSED  # it was never asked to commit
        raise
    finally:
        # Two calls that ask a coordinator, records, and the abort.
        world.conduct.waited(transaction.name, "a transaction", began_s, 15.0 * 4 + 30.0)
