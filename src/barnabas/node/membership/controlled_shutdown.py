"""Controlled shutdown, the broker's half: the controller moves its leaderships before the broker stops."""

from __future__ import annotations

import asyncio
import logging

from barnabas.cluster.coordination.contract import Coordination, CoordinationError, SessionState
from barnabas.cluster.metadata.cache import MetadataCache, PartitionMetadata
from barnabas.config.broker_config import BrokerConfig
from barnabas.controller.controller import KafkaController
from barnabas.core.clock import Clock
from barnabas.core.errors import BrokerNotAvailable, KafkaError, error_for
from barnabas.core.ids import NO_LEADER, BrokerId
from barnabas.node.membership.broker_registration import BrokerRegistration
from barnabas.node.membership.peers import Peers
from barnabas.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

logger = logging.getLogger(__name__)

HANDOVER_MS = 1_000.0
HANDOVER_POLL_MS = 50.0


class ControlledShutdown:
    def __init__(
        self,
        broker_id: BrokerId,
        registration: BrokerRegistration,
        config: BrokerConfig,
        znodes: Coordination,
        metadata: MetadataCache,
        controller: KafkaController,
        peers: Peers,
        clock: Clock,
    ) -> None:
        self._broker_id = broker_id
        self._registration = registration
        self._config = config
        self._znodes = znodes
        self._metadata = metadata
        self._controller = controller
        self._peers = peers
        self._clock = clock

    async def run(self) -> None:
        """Hand the leaderships over; give up after `controlled.shutdown.max.retries`."""
        config = self._config
        for attempt in range(1 + config.controlled_shutdown_max_retries):
            if attempt:
                await self._pause_for_heirs(config.controlled_shutdown_retry_backoff_ms)
            if self._znodes.state is not SessionState.CONNECTED:
                logger.warning("controlled shutdown skipped: no connection to the coordination store")
                return
            if not self._has_heirs():
                logger.info("controlled shutdown skipped: no other live broker has a replica")
                return
            try:
                async with asyncio.timeout(config.controller_socket_timeout_ms / 1_000):
                    remaining = await self._ask_controller()
            except (CoordinationError, KafkaError, TimeoutError) as error:
                logger.warning(
                    "controlled shutdown: the request to the controller failed: %s",
                    error or "no answer in time",
                )
                continue
            if not remaining:
                await self._until_moved(HANDOVER_MS)
                return
            logger.warning("controlled shutdown: this broker still leads %d partitions", remaining)
        logger.warning(
            "controlled shutdown failed: the broker stops as leader of some partitions; their clients wait"
            " for an election (controlled.shutdown.max.retries)"
        )

    async def _pause_for_heirs(self, timeout_ms: float) -> None:
        """Wait for a replica to join an ISR, as long as one can."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while self._has_heirs():
            if self._clock.monotonic_ms() > deadline_ms:
                return
            await asyncio.sleep(HANDOVER_POLL_MS / 1_000)

    def _has_heirs(self) -> bool:
        """Whether a live broker has a replica of a partition that this one leads, or this one leads none."""
        live = {broker.id for broker in self._metadata.brokers()} - {self._broker_id}
        led = self._led_partitions()
        return any(not live.isdisjoint(partition.replicas) for partition in led) if led else bool(live)

    def _led_partitions(self) -> list[PartitionMetadata]:
        """Partitions that this broker leads and another broker could lead."""
        return [
            partition
            for topic in self._metadata.topics()
            for partition in topic.partitions
            if partition.leader == self._broker_id and len(partition.replicas) > 1
        ]

    async def _until_moved(self, timeout_ms: float) -> None:
        """Serve until this broker's metadata, and so probably every broker's, names the new leaders. A client
        that loses its connection earlier would ask for metadata and find no new leader in it."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while self._led_partitions():
            if self._clock.monotonic_ms() > deadline_ms:
                logger.info("controlled shutdown: some brokers may not know the new leaders yet")
                return
            await asyncio.sleep(HANDOVER_POLL_MS / 1_000)

    async def _ask_controller(self) -> int:
        """Number of partitions that this broker still leads."""
        broker_epoch = self._registration.broker_epoch
        if self._controller.is_active:
            return len(await self._controller.controlled_shutdown(self._broker_id, broker_epoch))
        controller_id = self._controller.active_controller_id
        if controller_id == NO_LEADER:
            raise BrokerNotAvailable("the cluster has no controller now")
        request = ControlledShutdownRequest(broker_id=self._broker_id, broker_epoch=broker_epoch)
        answer = await self._peers.send(controller_id, request, ControlledShutdownResponse)
        if answer.error_code:
            raise error_for(answer.error_code)
        return len(answer.remaining_partitions)
