"""One broker: its parts, wired together, started in order and stopped in reverse.

Start-up goes from what everything needs to what everyone sees: coordination store, identity,
dynamic settings, logs (with recovery), sockets bound but idle, replicas, registration,
coordinators, handlers, controller, and last the first accepted connection. A broker that is the
controller tells itself what it leads by a call, so it leads that before anybody can ask. Each step puts
its undoing onto one exit stack, so shutdown is the mirror image and runs once, also after a start
that failed. A broker that is told to stop while it starts leaves off where it stands.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple

from barnabas import __version__
from barnabas.cluster.acl_replica import AclReplica
from barnabas.cluster.broker_znodes import BrokerInfo
from barnabas.cluster.config_store import ZnodeConfigStore
from barnabas.cluster.coordination import Coordination
from barnabas.cluster.delegation_tokens import DelegationTokens
from barnabas.cluster.deleted_partitions import DeletedPartitions
from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.cluster.registration import make_persistent_paths
from barnabas.cluster.topics import allocate_producer_ids
from barnabas.config.agreement import without_effect
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.repository import ConfigRepository
from barnabas.controller.internal_topics import InternalTopics
from barnabas.controller.producer_ids import ProducerIds
from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC, GroupCoordinator
from barnabas.coordinator.group.making import make_group_coordinator
from barnabas.coordinator.group.settings import GROUP_VERSION, GROUP_VERSION_FEATURE, GroupSettings
from barnabas.coordinator.transaction.cluster_markers import ClusterMarkers
from barnabas.coordinator.transaction.coordinator import TRANSACTION_TOPIC, TransactionCoordinator
from barnabas.coordinator.transaction.local_markers import LocalMarkers
from barnabas.coordinator.transaction.making import make_transaction_coordinator
from barnabas.coordinator.transaction.membership import TransactionMembership
from barnabas.coordinator.transaction.settings import TRANSACTION_VERSION_FEATURE, TransactionSettings
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.compiled import CODE
from barnabas.core.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.files import Files, RealFiles
from barnabas.core.host_lookup import HostLookup
from barnabas.core.ids import BrokerId, Randomness
from barnabas.core.limits import WRITTEN_ELSEWHERE_BYTES_MIN
from barnabas.core.metrics import Metrics
from barnabas.core.tasks import Tasks
from barnabas.handlers import APIS
from barnabas.network.server import Server
from barnabas.network.sockets import SYSTEM_SOCKETS, Sockets
from barnabas.node.advertised_endpoints import advertised_endpoints
from barnabas.node.authorization import open_acls
from barnabas.node.cluster_member import ClusterMember
from barnabas.node.coordination_store import OpenCoordination, open_coordination
from barnabas.node.coordinator_settings import (
    group_runtime_settings,
    offsets_topic,
    transaction_runtime_settings,
    transaction_topic,
)
from barnabas.node.identity import GENERATE, refuse_foreign_directories, settle_identity
from barnabas.node.lifecycle import BrokerState, Lifecycle
from barnabas.node.metrics_endpoint import metrics_page
from barnabas.node.replication_io import ReplicationTasks
from barnabas.node.runtime import LoopRunner, LoopScheduler, MakeWorkers, ThreadBackground, TimerDriver
from barnabas.node.sasl_listeners import (
    SaslListeners,
    follow_users,
    make_delegation_tokens,
    remove_expired_tokens,
)
from barnabas.node.store_copies import following
from barnabas.node.tls_listeners import open_tls
from barnabas.purgatory.timer import Timer
from barnabas.quota.client_quotas import ClientQuotas
from barnabas.quota.connection_rates import ConnectionRates
from barnabas.replication.leader.fetch_session_cache import FetchSessionCache
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.requests.dispatcher import Dispatcher
from barnabas.requests.services import Services
from barnabas.security.acl.authorizer import AllowAll
from barnabas.storage.environment import Environment, LogDirectory
from barnabas.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

DRAIN_MS_MAX = 5_000.0
"""Answers that are owed when the broker stops may take this long to leave."""


class StartAbandoned(Exception):
    """The broker was told to stop before it had started."""


class Coordinators(NamedTuple):
    """Of groups and of transactions, and what they share with the handlers."""

    groups: GroupCoordinator
    producer_ids: ProducerIds
    markers: LocalMarkers
    transactions: TransactionCoordinator


class Broker:
    """`startup` and `shutdown` are the whole of it; the rest is for those who look on."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        metrics_address: Endpoint | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        files: Files | None = None,
        sockets: Sockets = SYSTEM_SOCKETS,
        make_workers: MakeWorkers = ThreadBackground,
        open_store: OpenCoordination | None = None,
        written_elsewhere_bytes_min: int = WRITTEN_ELSEWHERE_BYTES_MIN,
    ) -> None:
        self.config = config
        self.broker_id = BrokerId(GENERATE)
        self.cluster_id = ""
        self.bound_listeners: list[ListenerEndpoint] = []
        self.metrics = Metrics()
        self.lifecycle = Lifecycle()
        self._metrics_address = metrics_address
        self._clock = clock or SystemClock()
        self._randomness = randomness or random.SystemRandom()
        self._files = files or RealFiles()
        self._sockets = sockets
        self._make_workers = make_workers
        self._open_store = open_store or open_coordination
        self._written_elsewhere_bytes_min = written_elsewhere_bytes_min
        self._exits = AsyncExitStack()
        self._tasks = Tasks()
        self._runner = LoopRunner()
        self._starting: asyncio.Task[None] | None = None
        self._replicas: ReplicaManager | None = None
        self.halted = asyncio.Event()
        """Set when the broker cannot go on (`halt_reason`): whoever runs it has to shut it down."""
        self.halt_reason = ""
        self._member: ClusterMember | None = None
        self.metrics.gauge(
            "kafka_broker_state", "The broker's state, by number.", lambda: self.lifecycle.state
        )
        self.metrics.gauge(
            "barnabas_build_info", "What runs: the release, compiled or not.", lambda: 1,
            version=__version__, code=CODE,
        )  # fmt: skip

    async def startup(self) -> None:
        """Raises StartAbandoned if the broker is told to stop meanwhile."""
        if not self.lifecycle.begin_startup():
            return
        self._replicas = self._member = None
        self._starting = asyncio.create_task(self._start(), name="broker-startup")
        try:
            await self._starting
        except asyncio.CancelledError:
            if self.lifecycle.state is BrokerState.STARTING:
                raise
            raise StartAbandoned("the broker was told to stop while it started") from None

    async def _start(self) -> None:
        ignored = without_effect(self.config.given)
        if ignored:
            logger.warning("these keys are given and have no effect here: %s", ", ".join(ignored))
        loop = asyncio.get_running_loop()
        self._scheduler = LoopScheduler(loop)
        self._exits.callback(self._scheduler.close)
        self._background = self._make_workers(loop, self.config.background_threads)
        self._exits.push_async_callback(self._background.close)

        page = metrics_page(
            self._metrics_address, self.config, self.metrics, self.lifecycle, self._clock, self._scheduler
        )
        refuse_foreign_directories(self._files, self.config.log_dirs)
        znodes = await self._open_coordination()
        identity = await settle_identity(self._files, self.config, znodes, self._randomness)
        self.broker_id, self.cluster_id = identity.broker_id, identity.cluster_id
        configs = ConfigRepository(ZnodeConfigStore(znodes), self.broker_id, self.config, self._runner)
        await configs.load()
        acls = await self._exits.enter_async_context(
            open_acls(self.config, znodes, self._clock, self._runner)
        )

        sasl = await self._open_sasl(configs, znodes)
        metadata = MetadataCache(self.cluster_id)
        metadata.on_topic_removed.append(lambda topic, _: configs.remove_topic(topic))
        member = self._make_member(znodes, configs, metadata)
        log_manager = self._open_logs(configs, identity.unusable)
        tls = open_tls(self.config, configs, self._clock, self._scheduler, self.metrics)
        server = self._bind()
        await server.per_ip.open(self._runner)
        replicas = self._make_replicas(log_manager, metadata, member)
        configs.on_broker_change(lambda _: self._settings_changed(log_manager))
        self._settings_changed(log_manager)
        broker_epoch = await self._register(member)
        self._exits.callback(log_manager.close, broker_epoch)
        self._exits.callback(replicas.close)
        self._exits.callback(self._tasks.cancel)
        configs.on_topic_change(replicas.table.update_log_config)
        coordinators = self._make_coordinators(znodes, configs, metadata, member, replicas)
        services = self._make_services(
            znodes, configs, metadata, member, replicas, coordinators, acls, sasl.tokens, server.hosts
        )
        dispatcher = Dispatcher(services.apis, services, self._clock, self.metrics)
        self._exits.push_async_callback(dispatcher.close)
        await self._exits.enter_async_context(page)

        def answer_waiting() -> None:
            coordinators.groups.runtime.answer_waiting()
            replicas.delayed.answer_waiting()

        self._exits.push_async_callback(server.stop, deadline_ms=DRAIN_MS_MAX, answer_waiting=answer_waiting)
        self._exits.push_async_callback(member.stop_controller)
        await member.join(services, log_manager)
        rates = ConnectionRates(configs.clients, self.config, self._clock, server.hosts)
        server.start(loop, dispatcher.dispatch, sasl.gates(dispatcher.dispatch), tls, rates)
        await member.until_introduced()
        self.lifecycle.move_to(BrokerState.RUNNING)

    def _make_coordinators(
        self,
        znodes: Coordination,
        configs: ConfigRepository,
        metadata: MetadataCache,
        member: ClusterMember,
        replicas: ReplicaManager,
    ) -> Coordinators:
        deleted = DeletedPartitions(znodes, self._runner, is_deletion_enabled=self.config.delete_topic_enable)
        groups = make_group_coordinator(
            GroupSettings.of(self.config, configs),
            group_runtime_settings(self.config),
            self.config.offsets_topic_num_partitions,
            replicas,
            metadata,
            deleted.find_topics,
            self._tasks.start,
            clock=self._clock,
            scheduler=self._scheduler,
            timer=self._timer,
            randomness=self._randomness,
            metrics=self.metrics,
        )
        self._exits.callback(groups.runtime.close)
        producer_ids = ProducerIds(lambda: allocate_producer_ids(znodes, self.broker_id), self._runner)
        self._exits.push_async_callback(producer_ids.close)
        markers = LocalMarkers(replicas, groups.runtime, self._clock)
        transactions = make_transaction_coordinator(
            TransactionSettings.of(self.config),
            transaction_runtime_settings(self.config),
            self.config.transaction_state_log_num_partitions,
            replicas,
            metadata,
            ClusterMarkers(self.broker_id, markers, metadata, member.peers, self._tasks.start, deleted.find),
            producer_ids.take_now,
            clock=self._clock,
            scheduler=self._scheduler,
            timer=self._timer,
            metrics=self.metrics,
        )
        self._exits.callback(transactions.runtime.close)
        return Coordinators(groups, producer_ids, markers, transactions)

    def _make_services(
        self,
        znodes: Coordination,
        configs: ConfigRepository,
        metadata: MetadataCache,
        member: ClusterMember,
        replicas: ReplicaManager,
        coordinators: Coordinators,
        acls: AclReplica | None,
        tokens: DelegationTokens | None,
        hosts: HostLookup,
    ) -> Services:
        """What the handlers work with."""
        groups, producer_ids, markers, transactions = coordinators
        return Services(
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            settings=self.config,
            clock=self._clock,
            apis=APIS.for_clients() if self.config.owns_store else APIS,
            features={
                GROUP_VERSION_FEATURE: GROUP_VERSION,
                TRANSACTION_VERSION_FEATURE: transactions.settings.transaction_version,
            },
            znodes=znodes,
            metadata=metadata,
            replicas=replicas,
            fetch_sessions=FetchSessionCache(
                self.config.max_incremental_fetch_session_cache_slots,
                self._clock,
                self._randomness,
                self.metrics,
                replicas.delayed.subscriptions,
            ),
            topics=member.topics,
            configs=configs,
            quotas=ClientQuotas(configs.clients, self.config, self._clock, self.metrics),
            producer_ids=producer_ids,
            groups=groups,
            transactions=transactions,
            transaction_membership=TransactionMembership(
                self.broker_id, transactions, metadata, member.peers, self._tasks.start
            ),
            markers=markers,
            internal_topics=InternalTopics(
                member.topics,
                metadata,
                {
                    OFFSETS_TOPIC: offsets_topic(self.config),
                    TRANSACTION_TOPIC: transaction_topic(self.config),
                },
            ),
            controller=member.controller,
            metadata_wait=member.metadata_wait,
            authorizer=AllowAll() if acls is None else acls.authorizer,
            acls=acls,
            address_of=partial(hosts.address_of, runner=self._runner),
            tokens=tokens,
        )

    async def shutdown(self) -> None:
        if self._member is not None and self.lifecycle.state is BrokerState.RUNNING:
            self.lifecycle.move_to(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            await self._member.shut_down_controlled()
        if not self.lifecycle.begin_shutdown():
            return
        await self._abandon_start()
        await self._exits.aclose()
        self.lifecycle.move_to(BrokerState.NOT_RUNNING)

    async def _abandon_start(self) -> None:
        """Nothing is undone before nothing more is done."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait((self._starting,))

    # The steps of start-up, in their order

    async def _open_coordination(self) -> Coordination:
        store = self._open_store(self.config, self._clock, self._background)
        znodes = await self._exits.enter_async_context(store)
        await make_persistent_paths(znodes)
        return znodes

    async def _open_sasl(self, configs: ConfigRepository, znodes: Coordination) -> SaslListeners:
        tokens = make_delegation_tokens(self.config, znodes, self._clock, self._background, self._runner)
        if tokens is not None:
            await self._exits.enter_async_context(following(znodes, tokens, "delegation tokens"))
            remove_expired_tokens(tokens, self.config, self._scheduler, self._tasks)
        sasl = SaslListeners(
            self.config,
            await follow_users(configs.clients, znodes, self.config.listeners),
            tokens,
            clock=self._clock,
            scheduler=self._scheduler,
            background=self._background,
            metrics=self.metrics,
            tasks=self._tasks,
        )
        await sasl.open(self.config.listeners)
        return sasl

    def _open_logs(self, configs: ConfigRepository, unusable: Mapping[str, OSError]) -> LogManager:
        environment = Environment(
            files=self._files,
            clock=self._clock,
            randomness=self._randomness,
            scheduler=self._scheduler,
            background=self._background,
            settings=self.config,
            written_elsewhere_bytes_min=self._written_elsewhere_bytes_min,
        )
        log_manager = LogManager(
            self.config,
            environment,
            configs.topic_config,
            metrics=self.metrics,
        )
        self._exits.callback(log_manager.abandon)
        log_manager.open(unusable)
        log_manager.start()
        return log_manager

    def _settings_changed(self, log_manager: LogManager) -> None:
        """Most settings are read where they are used; these two have something made of them."""
        log_manager.cleaner.reconfigure()
        self._background.resize(self.config.background_threads)

    def _directory_failed(self, directory: LogDirectory) -> None:
        """Partitions of a lost disk have no leader any more; all others live on."""
        assert self._replicas is not None
        assert self._member is not None
        self._member.log_directory_failed(self._replicas.local.directory_failed(directory))
        if not self._replicas.log_manager.live_directories:
            self.halt_reason = f"no log directory is left; the last was {directory.path}: {directory.failure}"
            logger.critical("the broker stops: %s", self.halt_reason)
            self.halted.set()

    def _bind(self) -> Server:
        """Take the ports now, so that a conflict stops the start before anything else happens."""
        server = Server(
            clock=self._clock,
            scheduler=self._scheduler,
            metrics=self.metrics,
            settings=self.config,
            sockets=self._sockets,
            background=self._background,
        )
        self._exits.callback(server.release)
        self.bound_listeners = [each.bound for each in server.bind(self.config.listeners)]
        return server

    def _make_member(
        self, znodes: Coordination, configs: ConfigRepository, metadata: MetadataCache
    ) -> ClusterMember:
        member = ClusterMember(
            self.broker_id,
            self.config,
            znodes,
            configs,
            metadata,
            clock=self._clock,
            scheduler=self._scheduler,
            runner=self._runner,
            randomness=self._randomness,
            metrics=self.metrics,
        )
        self._exits.push_async_callback(member.close)
        self._member = member
        return member

    def _make_replicas(
        self, log_manager: LogManager, metadata: MetadataCache, member: ClusterMember
    ) -> ReplicaManager:
        self._timer = Timer(self._clock)
        driver = TimerDriver(asyncio.get_running_loop(), self._clock, self._timer)
        self._exits.callback(driver.close)
        tasks = ReplicationTasks(member.isr_store, member.connect_to)
        self._exits.push_async_callback(tasks.close)
        replicas = ReplicaManager(
            self.broker_id,
            log_manager,
            self._clock,
            self._timer,
            self.metrics,
            isr_store=tasks,
            connect=tasks.connect,
            metadata=metadata,
            lease=member.lease(),
            broker_epoch=lambda: member.broker_epoch,
            scheduler=self._scheduler,
            background=self._background,
            settings=self.config,
            defer=asyncio.get_running_loop().call_soon,
        )
        # Twice, if the start comes so far: after the registration the logs are closed after the replicas.
        self._exits.callback(replicas.close)
        replicas.start()
        self._replicas = replicas
        log_manager.on_directory_failed.append(self._directory_failed)
        return replicas

    async def _register(self, member: ClusterMember) -> int:
        """Be present in the cluster, until shutdown; returns the epoch of this presence."""
        endpoints = advertised_endpoints(
            self.bound_listeners,
            self.config.advertised_listeners,
            must_be_reachable=not self.config.owns_store,
        )
        epoch = await member.register(BrokerInfo(self.broker_id, endpoints, self.config.broker_rack))
        self._exits.push_async_callback(member.unregister)
        return epoch
