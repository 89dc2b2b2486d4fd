"""Broker as a member of its cluster, be it the only one.

It joins the cluster under its registration (`broker_registration`), stands as a candidate for controller,
and connects to the other brokers. Before it stops, it hands its leaderships over (`controlled_shutdown`).
When the session is lost, the broker stops being the controller at that moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from barnabas.administration.config_notifications import ConfigNotifications
from barnabas.administration.disk_import import DiskImport, LogsOnDisk
from barnabas.administration.metadata_wait import MetadataWait
from barnabas.administration.topics import TopicAdministration
from barnabas.cluster.coordination.contract import (
    RECOVERY_RETRY_MS,
    Coordination,
    CoordinationError,
    SessionState,
)
from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.cluster.stores.isr_store import ZnodeIsrStore, report_failed_log_dir
from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.controller.controller import KafkaController
from barnabas.core.clock import Clock
from barnabas.core.errors import NotController
from barnabas.core.ids import BrokerId, Randomness, TopicPartition
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import Scheduler
from barnabas.core.tasks import Tasks
from barnabas.node.membership.broker_registration import BrokerRegistration
from barnabas.node.membership.controlled_shutdown import ControlledShutdown
from barnabas.node.membership.controller_channels import BrokerChannel, ControllerChannels
from barnabas.node.membership.local_channel import OwnBroker
from barnabas.node.membership.peers import Peers
from barnabas.requests.services import Services

logger = logging.getLogger(__name__)

INTRODUCTION_POLL_MS = 5.0


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
        self.isr_store = ZnodeIsrStore(znodes, clock, scheduler, self._tasks.start)
        self._channels = ControllerChannels(self._connect_as_controller, clock, scheduler)
        self.controller = KafkaController(
            znodes,
            broker_id,
            configs,
            clock,
            scheduler,
            randomness,
            self._channels.start_sender,
            metrics,
            config,
        )
        self.metadata_wait = MetadataWait(metadata, scheduler)
        self.topics = TopicAdministration(
            znodes,
            configs,
            metadata,
            randomness,
            scheduler,
            self.metadata_wait,
            is_alone=config.owns_store,
        )
        self._config_notifications = ConfigNotifications(znodes, configs, clock, scheduler)
        self.registration = BrokerRegistration(
            broker_id,
            config,
            znodes,
            clock=clock,
            scheduler=scheduler,
            on_lost=self._session_lost,
            on_renewed=self._session_renewed,
        )

    def _session_lost(self) -> None:
        self.controller.session_expired()

    def _session_renewed(self) -> None:
        self._config_notifications.session_renewed()
        self.controller.session_renewed()

    async def _connect_as_controller(self, broker: BrokerInfo) -> BrokerChannel:
        if broker.id == self._broker_id and self._own_broker is not None:
            return self._own_broker
        return await self.peers.connect(broker)

    def log_directory_failed(self, lost: Collection[TopicPartition]) -> None:
        """Remove these leaderships from this broker's metadata at once. The controller then asks for the lost
        replicas, and elects other leaders."""
        self._metadata.put_offline(self._broker_id, lost)
        self._tasks.start(self._report_failed_directory())

    async def _report_failed_directory(self) -> None:
        while self.registration.is_kept:
            try:
                await report_failed_log_dir(self._znodes, self._broker_id)
            except CoordinationError as error:
                logger.warning(
                    "broker %d: cannot report the failed log directory, trying again: %r",
                    self._broker_id,
                    error,
                )
                await asyncio.sleep(RECOVERY_RETRY_MS / 1_000)
            else:
                return

    async def join(self, services: Services, disk: LogsOnDisk) -> None:
        """Stand for controller. If this broker wins, it leads its partitions when this returns."""
        is_alone = self._config.owns_store
        self._own_broker = OwnBroker(services)
        if is_alone:
            disk_import = DiskImport(
                self._znodes,
                self._broker_id,
                self._configs,
                self._randomness,
                disk,
                services.internal_topics.configs_of,
            )
            await disk_import.run()
        self.isr_store.start()
        await self._in_some_session(self._config_notifications.start)
        await self._in_some_session(self.controller.start)
        if is_alone and not self.controller.is_active:
            raise NotController("the only broker could not become the controller; its log shows the reason")
        await self.controller.until_told(None if is_alone else self._config.zookeeper_connection_timeout_ms)

    async def _in_some_session(self, step: Callable[[], Awaitable[None]]) -> None:
        """Run a step of the start. If the session ends meanwhile, run it again in the next one."""
        while True:
            session_id = self._znodes.session_id
            try:
                await step()
            except (CoordinationError, NotController) as error:
                is_same = self._znodes.session_id == session_id
                if self._config.owns_store or (is_same and self._znodes.state is SessionState.CONNECTED):
                    raise
                logger.warning(
                    "broker %d: session expired while it joined the cluster: %r", self._broker_id, error
                )
                await self.registration.until_registered_after(session_id)
            else:
                return

    async def until_introduced(self) -> None:
        """Wait for the controller's first UpdateMetadata, up to `zookeeper.connection.timeout.ms`."""
        deadline_ms = self._clock.monotonic_ms() + self._config.zookeeper_connection_timeout_ms
        while not self._metadata.is_live(self._broker_id):
            if self._clock.monotonic_ms() > deadline_ms:
                logger.warning(
                    "broker %d: no UpdateMetadata from a controller yet; check that a controller is elected"
                    " and can reach this broker",
                    self._broker_id,
                )
                return
            await asyncio.sleep(INTRODUCTION_POLL_MS / 1_000)

    async def stop_controller(self) -> None:
        await self.controller.close()
        await self._channels.close()
        await self._config_notifications.close()
        await self.isr_store.close()

    async def shut_down_controlled(self) -> None:
        """Hand the leaderships over before the broker stops, unless the configuration disables that."""
        if self._config.controlled_shutdown_enable:
            await ControlledShutdown(
                self._broker_id,
                self.registration,
                self._config,
                self._znodes,
                self._metadata,
                self.controller,
                self.peers,
                self._clock,
            ).run()

    async def close(self) -> None:
        await self.registration.close()
        await self._tasks.close()
        self.peers.close()
