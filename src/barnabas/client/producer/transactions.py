"""Calls of a transactional producer: init, begin, offsets, commit, abort.

A commit waits until every record has an outcome, then ends the transaction at its coordinator. An abort fails
the records that were never sent, and waits for the others. A call that times out may be repeated: the state
stays where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.client_errors import TransactionAborted
from barnabas.client.core.cluster_state import TRANSACTION
from barnabas.client.core.steps import ClusterUnreachable, Steps
from barnabas.client.producer.core.producer_state import ProducerState
from barnabas.client.producer.core.sender import Sender
from barnabas.client.producer.core.transaction_requests import (
    CommittedOffset,
    GroupAlone,
    GroupMember,
    Identity,
    add_to_transaction,
    commit_offsets,
    end_transaction,
    transactional_id,
)
from barnabas.client.producer.core.transaction_state import TransactionState, TransactionStatus
from barnabas.client.producer.sending import VERSION_OF_TRANSACTIONS_1, Sending
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.tasks import Tasks
from barnabas.protocol.messages.produce import ProduceRequest

T = TypeVar("T")

FEATURE: Final = "transaction.version"


class Transactions:
    def __init__(
        self,
        state: TransactionState,
        producer: ProducerState,
        cluster: ClusterClient,
        sender: Sender,
        sending: Sending,
        *,
        timeout_ms: int,
        finish: Callable[[], Awaitable[None]],
    ) -> None:
        """`finish` waits until every record has an outcome."""
        self.state = state
        self._producer = producer
        self._cluster = cluster
        self._sender = sender
        self._sending = sending
        self._timeout_ms = timeout_ms
        self._finish = finish
        self._tasks = Tasks()
        self._adding: asyncio.Task[None] | None = None
        self._initializing = asyncio.Lock()
        self._ending = 0
        """Calls that end the transaction now."""
        self._ended = asyncio.Event()
        self._ended.set()

    @property
    def _name(self) -> str:
        return self.state.transactional_id

    @property
    def _identity(self) -> Identity:
        return Identity(self._producer.producer_id, self._producer.epoch)

    async def close(self) -> None:
        await self._tasks.close()

    async def init(self) -> None:
        """Get the producer id, and fence older producers of this transactional id. Once."""
        async with self._initializing:
            if self.state.status is not TransactionStatus.UNINITIALIZED:
                return
            found = await self._ask(transactional_id(self._cluster.state, self._name, self._timeout_ms))
            self._producer.set_id(*found)
            self.state.initialized(await self._protocol())

    async def _protocol(self) -> int:
        """Transaction protocol of the cluster, 1 or 2."""
        coordinator = await self._cluster.coordinator(self._name, TRANSACTION)
        channel = await self._cluster.channel_to(coordinator)
        has_feature = channel.finalized_features.get(FEATURE, 0) >= 2
        return 2 if has_feature and channel.version_for(ProduceRequest) > VERSION_OF_TRANSACTIONS_1 else 1

    async def begin(self) -> None:
        await self.init()
        self.state.begin()

    def about_to_write(self, at: TopicPartition) -> None:
        """A batch is opened for a partition: add it to the transaction, with protocol 1."""
        if self.state.maybe_add(at) and self._adding is None:
            self._adding = asyncio.get_running_loop().create_task(self._add_partitions())
            self._tasks.keep(self._adding)

    async def _add_partitions(self) -> None:
        try:
            while self.state.to_add and not self.state.is_fatal:
                await asyncio.sleep(0)  # records of this turn of the loop share the request
                partitions = set(self.state.to_add)
                await self._ask(
                    add_to_transaction(self._cluster.state, self._name, self._identity, partitions)
                )
                self.state.added(partitions)
                self._sending.wake()
        except (KafkaError, ClusterUnreachable) as error:
            self.state.to_add.clear()
            self._sender.abort_unsent(error)
        finally:
            self._adding = None

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group: str | GroupMember
    ) -> None:
        self.state.check_can_send()
        if not offsets:
            return
        member = GroupAlone(group) if isinstance(group, str) else group
        self.state.has_group = True
        await self._ask(
            commit_offsets(
                self._cluster.state, self._name, self._identity, self.state.version, member, offsets
            )
        )

    async def commit(self) -> None:
        self.state.begin_commit()
        await self._finish_and_end(commit=True)

    async def abort(self) -> None:
        self.state.begin_abort()
        self._sender.abort_unsent(self.state.error or TransactionAborted("the transaction is aborted"))
        self.state.to_add.clear()
        await self._finish_and_end(commit=False)

    async def until_ended(self) -> None:
        """Wait for the commit or the abort of another task. Cut off, its outcome would be unknown."""
        await self._ended.wait()

    async def _finish_and_end(self, *, commit: bool) -> None:
        self._ending += 1
        self._ended.clear()
        try:
            await self._records_are_done()
            self._raise_failure()
            await self._end(commit=commit)
        finally:
            self._ending -= 1
            if not self._ending:
                self._ended.set()

    async def _records_are_done(self) -> None:
        if self._adding is not None:
            await asyncio.wait((self._adding,))
        await self._finish()

    async def _end(self, *, commit: bool) -> None:
        state = self.state
        if state.is_begun_at_coordinator:
            ended = await self._ask(
                end_transaction(
                    self._cluster.state, self._name, self._identity, state.version, commit=commit
                ),
                is_end=True,
            )
            if ended != self._identity:
                self._producer.set_id(*ended)
        if state.needs_new_epoch:
            raised = transactional_id(self._cluster.state, self._name, self._timeout_ms, self._identity)
            self._producer.set_id(*await self._ask(raised, is_end=True))
        state.ended()

    def _raise_failure(self) -> None:
        status = self.state.status
        if status in (TransactionStatus.ABORTABLE_ERROR, TransactionStatus.FATAL_ERROR):
            assert self.state.error is not None
            raise self.state.error

    async def _ask(self, steps: Steps[T], *, is_end: bool = False) -> T:
        """Drive a conversation. A failure that a repeated call cannot change becomes the state's error."""
        try:
            return await self._cluster.run(steps)
        except KafkaError as error:
            if not error.retriable:
                self.state.request_failed(error, is_end=is_end)
                if self.state.is_fatal:
                    self._sender.abort_all(error)
            raise
