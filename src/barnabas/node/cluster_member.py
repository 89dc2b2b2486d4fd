"""A broker as a member of a cluster, of which it may be the only one.

It is present in the coordination store under an epoch that each session makes anew, it competes to be the
controller, it reaches the other brokers, and before it stops it asks the controller to move its
leaderships away. When its session is lost, it is no longer the controller at that moment, and its lease
(`replication.leader.lease`) keeps it from acknowledging anything; with the next session it registers again,
and leads only what the controller tells to its new epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from barnabas.client.channel import Channel
from barnabas.cluster.broker_znodes import BrokerInfo
from barnabas.cluster.coordination import Coordination, CoordinationError, SessionState
from barnabas.cluster.isr_store import ZnodeIsrStore, report_failed_log_dir
from barnabas.cluster.metadata_cache import MetadataCache, PartitionMetadata
from barnabas.cluster.registration import Registration
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.repository import ConfigRepository
from barnabas.controller.administration import TopicAdministration
from barnabas.controller.adoption import Adoption, LogsOnDisk
from barnabas.controller.config_notifications import ConfigNotifications
from barnabas.controller.controller import KafkaController
from barnabas.controller.metadata_wait import MetadataWait
from barnabas.core.clock import Clock
from barnabas.core.errors import BrokerNotAvailable, KafkaError, NotController, error_for
from barnabas.core.ids import NO_EPOCH, NO_LEADER, BrokerId, Randomness, TopicPartition
from barnabas.core.metrics import Metrics
from barnabas.core.scheduler import Scheduler
from barnabas.core.tasks import Tasks
from barnabas.core.waiting import Runner
from barnabas.node.controller_channels import BrokerChannel, ControllerChannels
from barnabas.node.own_broker import OwnBroker
from barnabas.node.peers import Peers
from barnabas.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from barnabas.replication.leader.lease import LeadershipLease
from barnabas.requests.services import Services

logger = logging.getLogger(__name__)

RETRY_MS = 1_000.0
INTRODUCTION_POLL_MS = 5.0
HANDOVER_MS = 1_000.0
HANDOVER_POLL_MS = 50.0


class ClusterMember:
    def __init__(
        self,
        broker_id: BrokerId,
        config: BrokerConfig,
        znodes: Coordination,
        configs: ConfigRepository,
        metadata: MetadataCache,
        *,
        clock: Clock,
        scheduler: Scheduler,
        runner: Runner,
        randomness: Randomness,
        metrics: Metrics,
    ) -> None:
        self._broker_id = broker_id
        self._config = config
        self._znodes = znodes
        self._configs = configs
        self._metadata = metadata
        self._clock = clock
        self._randomness = randomness
        self._own_broker: OwnBroker | None = None
        self.peers = Peers(broker_id, metadata, config)
        self._tasks = Tasks()
        self.isr_store = ZnodeIsrStore(znodes, clock, scheduler, runner, self._tasks.start)
        self._channels = ControllerChannels(self._connect_as_controller, clock, scheduler)
        self.controller = KafkaController(
            znodes,
            broker_id,
            configs,
            clock,
            scheduler,
            randomness,
            runner,
            self._channels.start_sender,
            metrics,
            config,
        )
        self.metadata_wait = MetadataWait(metadata, scheduler, runner)
        self.topics = TopicAdministration(
            znodes,
            configs,
            metadata,
            randomness,
            scheduler,
            runner,
            self.metadata_wait,
            is_alone=config.owns_store,
        )
        self._config_notifications = ConfigNotifications(znodes, configs, clock, scheduler, runner)
        self._registration = Registration(znodes, clock, scheduler, runner)
        self._present: BrokerInfo | None = None
        self._returns = Tasks()
        """The registration in a new session, which may take long; never two."""
        self._session_id = self._registered_in = znodes.session_id

    # Presence

    @property
    def broker_epoch(self) -> int:
        return NO_EPOCH if self._present is None else self._present.epoch

    def registered_epoch(self) -> int | None:
        """The broker's epoch, if it is of the present session: what the lease of this session is about."""
        if self._present is None or self._registered_in != self._znodes.session_id:
            return None
        return self._present.epoch

    def lease(self) -> LeadershipLease | None:
        """None where no session can be lost: the embedded store ends with its process."""
        if self._config.owns_store:
            return None
        return LeadershipLease(self._clock, lambda: self._znodes.lease_expires_ms, self.registered_epoch)

    async def register(self, broker: BrokerInfo) -> int:
        """Be present, in this session and in those that follow it; returns the epoch."""
        self._present = await self._registration.register(broker)
        self._session_id = self._registered_in = self._znodes.session_id
        self._znodes.add_listener(self._session_changed)
        return self._present.epoch

    async def unregister(self) -> None:
        self._present = None
        await self._returns.close()
        try:
            await self._registration.unregister(self._broker_id)
        except CoordinationError as error:
            logger.info("the registration is left to the end of the session: %r", error)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            if not self._config.owns_store:
                logger.warning("the session is lost: nothing is acknowledged until there is a new one")
            self.controller.session_expired()
        elif state is SessionState.CONNECTED and self._znodes.session_id != self._session_id:
            self._session_id = self._znodes.session_id
            self._returns.cancel()  # in the session before this one
            self._returns.start(self._return())

    async def _return(self) -> None:
        """In a new session: register under a new epoch, then compete to be the controller."""
        session_id = self._session_id
        while self._present is not None and session_id == self._session_id:
            try:
                self._present = await self._registration.register(self._present)
                self._registered_in = self._znodes.session_id
            except Exception as error:
                # Without its presence the broker is nobody, so whatever was in the way, it tries again.
                is_expected = isinstance(error, CoordinationError | KafkaError)
                logger.warning("registering again failed: %r", error, exc_info=not is_expected)
                await asyncio.sleep(RETRY_MS / 1_000)
                continue
            self._config_notifications.session_renewed()
            self.controller.session_renewed()
            return

    async def until_introduced(self) -> None:
        """Wait until the controller has told this broker of the cluster, but not for ever."""
        deadline_ms = self._clock.monotonic_ms() + self._config.zookeeper_connection_timeout_ms
        while not self._metadata.is_live(self._broker_id):
            if self._clock.monotonic_ms() > deadline_ms:
                logger.warning("no controller has introduced this broker to the cluster yet")
                return
            await asyncio.sleep(INTRODUCTION_POLL_MS / 1_000)

    # Other brokers

    async def _connect_as_controller(self, broker: BrokerInfo) -> BrokerChannel:
        if broker.id == self._broker_id and self._own_broker is not None:
            return self._own_broker
        return await self.peers.connect(broker)

    async def connect_to(self, broker_id: BrokerId) -> Channel:
        """A channel to another broker, for a fetcher."""
        broker = self._metadata.broker(broker_id)
        if broker is None:
            raise BrokerNotAvailable(f"broker {broker_id} is not in the cluster now")
        return await self.peers.connect(broker)

    def log_directory_failed(self, lost: Collection[TopicPartition]) -> None:
        """Clients of this broker hear at once that it leads these no more. The controller asks then which
        replicas are lost, and elects others."""
        self._metadata.put_offline(self._broker_id, lost)
        self._tasks.start(self._report_failed_directory())

    async def _report_failed_directory(self) -> None:
        while self._present is not None:
            try:
                await report_failed_log_dir(self._znodes, self._broker_id)
            except CoordinationError as error:
                logger.warning("the controller cannot be told of the failed directory: %r", error)
                await asyncio.sleep(RETRY_MS / 1_000)
            else:
                return

    # Joining and leaving

    async def join(self, services: Services, disk: LogsOnDisk) -> None:
        """Compete to be the controller; if this broker is, it leads what it shall lead when this returns."""
        is_alone = self._config.owns_store
        self._own_broker = OwnBroker(services)
        if is_alone:
            await Adoption(self._znodes, self._broker_id, self._configs, self._randomness, disk).run()
        self.isr_store.start()
        await self._config_notifications.start()
        await self.controller.start()
        if is_alone and not self.controller.is_active:
            raise NotController("this broker is alone and could not become the controller; its log says why")
        await self.controller.until_told(None if is_alone else self._config.zookeeper_connection_timeout_ms)

    async def stop_controller(self) -> None:
        await self.controller.close()
        await self._channels.close()
        await self._config_notifications.close()
        await self.isr_store.close()

    async def shut_down_controlled(self) -> None:
        """Hand the leaderships over before the broker stops; give up after a few tries."""
        config = self._config
        if not config.controlled_shutdown_enable:
            return
        for attempt in range(1 + config.controlled_shutdown_max_retries):
            if attempt:
                await self._pause_for_heirs(config.controlled_shutdown_retry_backoff_ms)
            if self._znodes.state is not SessionState.CONNECTED:
                logger.warning("no controller can act without the store: stopping without a handover")
                return
            if not self._has_heirs():
                logger.info("no other broker could take over: stopping without a handover")
                return
            try:
                async with asyncio.timeout(config.controller_socket_timeout_ms / 1_000):
                    remaining = await self._ask_controller()
            except (CoordinationError, KafkaError, TimeoutError) as error:
                logger.warning(
                    "the controller did not take the leaderships: %s", error or "no answer in time"
                )
                continue
            if not remaining:
                await self._until_moved(HANDOVER_MS)
                return
            logger.warning("%d partitions are still led here", remaining)
        logger.warning("stopping although some partitions are still led here")

    async def _pause_for_heirs(self, timeout_ms: float) -> None:
        """Time for a replica to come in sync, as long as there is one."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while self._has_heirs():
            if self._clock.monotonic_ms() > deadline_ms:
                return
            await asyncio.sleep(HANDOVER_POLL_MS / 1_000)

    def _has_heirs(self) -> bool:
        """Whether a live broker has a replica of something that this one leads, or nothing is led here."""
        live = {broker.id for broker in self._metadata.brokers()} - {self._broker_id}
        led = self._led_partitions()
        return any(not live.isdisjoint(partition.replicas) for partition in led) if led else bool(live)

    def _led_partitions(self) -> list[PartitionMetadata]:
        """Those that somebody else could lead as well."""
        return [
            partition
            for topic in self._metadata.topics()
            for partition in topic.partitions
            if partition.leader == self._broker_id and len(partition.replicas) > 1
        ]

    async def _until_moved(self, timeout_ms: float) -> None:
        """Serve until this broker, and so probably every other, has heard who leads in its place: clients
        that lose their connection earlier would ask, and hear of nobody new."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while self._led_partitions():
            if self._clock.monotonic_ms() > deadline_ms:
                logger.info("not everybody may have heard yet who leads in place of this broker")
                return
            await asyncio.sleep(HANDOVER_POLL_MS / 1_000)

    async def _ask_controller(self) -> int:
        """How many partitions stay with this broker."""
        if self.controller.is_active:
            return len(await self.controller.controlled_shutdown(self._broker_id, self.broker_epoch))
        controller_id = self.controller.active_controller_id
        if controller_id == NO_LEADER:
            raise BrokerNotAvailable("there is no controller now")
        request = ControlledShutdownRequest(broker_id=self._broker_id, broker_epoch=self.broker_epoch)
        answer = await self.peers.send(controller_id, request, ControlledShutdownResponse)
        if answer.error_code:
            raise error_for(answer.error_code)
        return len(answer.remaining_partitions)

    async def close(self) -> None:
        self._present = None
        await self._returns.close()
        await self._tasks.close()
        self.peers.close()
