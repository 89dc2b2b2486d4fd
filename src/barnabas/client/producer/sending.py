"""Asyncio shell of the sender: connections, requests and timers.

`wake` runs the sender once, soon. It runs when a batch is opened or full, when an answer or metadata arrives,
and at the time that the sender names. A run is a plain function on the loop, so that a record on its way
passes no task.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from functools import partial
from typing import Final

from barnabas.client.aio.channel import Channel
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.producer.core.producer_state import ProducerState
from barnabas.client.producer.core.sender import Outgoing, Sender
from barnabas.client.producer.core.transaction_requests import idempotent_id
from barnabas.core.backoff import Backoff
from barnabas.core.errors import KafkaError, NetworkException
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.tasks import Tasks
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

VERSION_WITHOUT_TOPIC_IDS: Final = 12
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
VERSION_OF_TRANSACTIONS_1: Final = 11
"""From version 12 on, a write adds its partition to the transaction implicitly."""

logger = logging.getLogger(__name__)


class Sending:
    def __init__(
        self,
        cluster: ClusterClient,
        sender: Sender,
        state: ProducerState,
        *,
        acks: int,
        request_timeout_ms: int,
        backoff: Backoff,
        linger_ms: float,
    ) -> None:
        self._cluster = cluster
        self._sender = sender
        self._state = state
        self._acks = acks
        self._request_timeout_ms = request_timeout_ms
        self._backoff = backoff
        self._linger_s = linger_ms / 1_000
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._connecting: set[int] = set()
        self._is_identifying = False
        self._id_refusals = 0
        self._is_stopped = False

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._cluster.updates.on_update.append(self.wake)

    async def stop(self) -> None:
        """Send nothing more. Batches without an outcome are the caller's business."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()

    # --- waking ---

    def wake(self) -> None:
        """Run the sender soon."""
        if not self._is_scheduled and not self._is_stopped:
            assert self._loop is not None
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def opened_batch(self) -> None:
        """A batch was opened: it goes out after linger.ms. A timer that is set fires before that."""
        if self._linger_s <= 0 or self._timer is None:
            self.wake()
            return
        assert self._loop is not None
        if self._timer.when() > self._loop.time() + self._linger_s:
            self.wake()

    def _run(self) -> None:
        self._is_scheduled = False
        if self._is_stopped:
            return
        sender = self._sender
        with sweeping("the producer's sender"):
            for request in sender.requests(self._can_send):
                self._post(request)
        if self._state.needs_id and self._state.transaction is None:
            self._identify()
        if sender.wants_metadata:
            sender.wants_metadata = False
            self._cluster.updates.request()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sender.wake_ms < math.inf and not self._is_scheduled:
            assert self._loop is not None
            pause_ms = max(0.0, self._sender.wake_ms - self._cluster.clock.monotonic_ms())
            self._timer = self._loop.call_later(pause_ms / 1_000, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self.wake()

    # --- connections ---

    def _can_send(self, broker_id: int) -> bool:
        """True when a request can be written to a broker now. Otherwise the sender is woken when it can."""
        address = self._cluster.address_of(broker_id)
        if address is None:
            self._sender.wants_metadata = True
            return False
        channel = self._cluster.connections.open_channel(address)
        if channel is not None and channel.is_writable and not channel.throttled_ms:
            return True
        if broker_id not in self._connecting:
            self._connecting.add(broker_id)
            self._tasks.start(self._make_ready(broker_id))
        return False

    async def _make_ready(self, broker_id: int) -> None:
        """Connect to a broker, or wait until its connection takes requests again."""
        try:
            channel = await self._cluster.channel_to(broker_id)
            if channel.throttled_ms:
                await asyncio.sleep(channel.throttled_ms / 1_000)
            await channel.until_writable()
        except KafkaError as error:
            logger.info("broker %d cannot be reached: %s", broker_id, error)
            self._cluster.updates.request()
            if not error.retriable:
                self._sender.abort_all(error)
        finally:
            self._connecting.discard(broker_id)
            self.wake()

    def _identify(self) -> None:
        if not self._is_identifying and self._sender.has_waiting:
            self._is_identifying = True
            self._tasks.start(self._get_id())

    async def _get_id(self) -> None:
        """Ask once for a producer id. A refusal fails the records that wait for it; later ones ask again,
        after a pause.
        """
        try:
            found = await self._cluster.run(idempotent_id())
        except (KafkaError, ClusterUnreachable) as error:
            if isinstance(error, KafkaError) and not error.retriable:
                self._sender.abort_all(error)
            else:
                logger.info("no producer id yet: %s", error)
            pause_ms = self._backoff.after_ms(self._id_refusals)
            self._id_refusals += 1
            await asyncio.sleep(pause_ms / 1_000)
        else:
            self._id_refusals = 0
            self._state.set_id(*found)
        finally:
            self._is_identifying = False
            self.wake()

    # --- requests ---

    def _post(self, outgoing: Outgoing) -> None:
        address = self._cluster.address_of(outgoing.broker_id)
        channel = None if address is None else self._cluster.connections.open_channel(address)
        try:
            if channel is None:
                raise NetworkException(f"the connection to broker {outgoing.broker_id} is lost")
            self._write(channel, outgoing)
        except KafkaError as error:
            self._failed(outgoing, error)

    def _write(self, channel: Channel, outgoing: Outgoing) -> None:
        transaction = self._state.transaction
        version_max = None if outgoing.names_ids else VERSION_WITHOUT_TOPIC_IDS
        if transaction is not None and transaction.version < 2:
            version_max = VERSION_OF_TRANSACTIONS_1
        version = channel.version_for(ProduceRequest, version_max)
        request = self._request(outgoing)
        if self._acks == 0:
            channel.post_unanswered(request, version)
            self._sender.written(outgoing)
            self.wake()
            return
        channel.post(
            request,
            ProduceResponse,
            version,
            answered=partial(self._answered, outgoing, version >= FIRST_VERSION_WITH_TOPIC_IDS),
            failed=partial(self._failed, outgoing),
            timeout_ms=self._request_timeout_ms,
        )

    def _request(self, outgoing: Outgoing) -> ProduceRequest:
        rows: defaultdict[str, list[PartitionProduceData]] = defaultdict(list)
        for batch in outgoing.batches:
            topic, partition = batch.topic_partition
            rows[topic].append(PartitionProduceData(index=partition, records=batch.data))
        transaction = self._state.transaction
        return ProduceRequest(
            transactional_id=None if transaction is None else transaction.transactional_id,
            acks=self._acks,
            timeout_ms=self._request_timeout_ms,
            topic_data=[
                TopicProduceData(name=topic, topic_id=outgoing.topic_ids[topic], partition_data=data)
                for topic, data in rows.items()
            ],
        )

    def _answered(self, outgoing: Outgoing, by_id: bool, answer: ProduceResponse) -> None:
        self._sender.answered(outgoing, answer, by_id=by_id)
        self.wake()

    def _failed(self, outgoing: Outgoing, error: Exception) -> None:
        known = error if isinstance(error, KafkaError) else NetworkException(str(error))
        self._sender.failed(outgoing, known)
        self.wake()
