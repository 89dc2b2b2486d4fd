"""Broker: wires its parts together, starts them in order and stops them in reverse.

Start-up begins with the parts that all others need and ends with those that clients see. The order is
coordination store, identity, dynamic settings, logs (with recovery), sockets bound but idle, replicas,
registration, coordinators, handlers, controller, and last the first accepted connection. A broker that is the
controller makes itself leader by a direct call, so it leads its partitions before the first client can ask.

Each step puts its undoing onto one exit stack. So shutdown is the mirror image and runs once, also after a
failed start. A stop during the start cancels the step in progress.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, nullcontext
from functools import partial
from typing import NamedTuple

from barnabas import __version__
from barnabas.administration.internal_topics import InternalTopics
from barnabas.cluster.coordination.contract import Coordination, SessionState
from barnabas.cluster.coordination.measured import measured
from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.cluster.stores.acl_replica import AclReplica
from barnabas.cluster.stores.config_store import ZnodeConfigStore
from barnabas.cluster.stores.delegation_tokens import DelegationTokens
from barnabas.cluster.stores.registration import make_persistent_paths
from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.cross_checks import without_effect
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC
from barnabas.coordinator.group.state.settings import GROUP_VERSION, GROUP_VERSION_FEATURE
from barnabas.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from barnabas.coordinator.transaction.state.settings import TRANSACTION_VERSION_FEATURE
from barnabas.coordinator.transaction.verification.add_partitions_to_txn_manager import (
    AddPartitionsToTxnManager,
)
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.addressing.host_lookup import HostLookup
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.compiled import CODE
from barnabas.core.files import Files, RealFiles
from barnabas.core.ids import BrokerId, Randomness, TopicPartition
from barnabas.core.limits import WRITTEN_ELSEWHERE_BYTES_MIN
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.tasks import Tasks
from barnabas.handlers import APIS
from barnabas.network.server import Server
from barnabas.network.transport.exchange import Dispatch
from barnabas.network.transport.sockets import SYSTEM_SOCKETS, Sockets
from barnabas.node.authorization import open_acls
from barnabas.node.background_threads import ThreadBackground
from barnabas.node.coordinators import (
    Coordinators,
    offsets_topic,
    open_coordinators,
    show_group_lags,
    transaction_topic,
)
from barnabas.node.inspected_parts import InspectedParts
from barnabas.node.lifecycle import BrokerState, Lifecycle
from barnabas.node.membership.broker_registration import advertised_endpoints
from barnabas.node.membership.cluster_member import ClusterMember
from barnabas.node.membership.coordination_store import OpenCoordination, open_coordination
from barnabas.node.membership.identity import (
    GENERATE,
    refuse_foreign_directories,
    refuse_missing_store,
    settle_identity,
)
from barnabas.node.membership.replication_io import ReplicationTasks
from barnabas.node.membership.store_watcher import following
from barnabas.node.process_metrics import LoopHealth, register_loop_metrics, register_process_metrics
from barnabas.node.runtime import LoopScheduler, MakeWorkers, TimerDriver, Workers
from barnabas.node.security.sasl_listeners import (
    SaslListeners,
    follow_users,
    make_delegation_tokens,
    remove_expired_tokens,
)
from barnabas.node.security.tls_listeners import open_tls
from barnabas.purgatory.timer import Timer
from barnabas.quota.client_quotas import ClientQuotas
from barnabas.quota.connection_rates import ConnectionRates
from barnabas.replication.leader.fetch_session_cache import FetchSessionCache
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.requests.dispatcher import Dispatcher
from barnabas.requests.registry import frame_bytes_max_of
from barnabas.requests.services import Services
from barnabas.security.acl.authorizer import AllowAll
from barnabas.storage.directory.known_directories import missing_directories
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.log_manager import LogManager
from barnabas.telemetry.client_instances import SWEEP_INTERVAL_MS, ClientInstances
from barnabas.telemetry.subscriptions import Subscriptions

logger = logging.getLogger(__name__)

DRAIN_MS_MAX = 5_000.0
"""Time to send the remaining answers when the broker stops."""


class StartAbandoned(Exception):
    """The broker received a stop before its start was complete."""


DispatchLayer = Callable[[Dispatch, MetadataCache], Dispatch]
"""Wraps the dispatch of requests; the test kit injects faults so."""


class LoopWork(NamedTuple):
    """Timers and threads of the event loop, from the start of the broker to its end."""

    scheduler: LoopScheduler
    background: Workers


class Broker:
    """`startup` and `shutdown` run the broker; the public attributes show its state."""

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
        dispatch_layer: DispatchLayer | None = None,
    ) -> None:
        self.config = config
        self.broker_id = BrokerId(GENERATE)
        self.cluster_id = ""
        self.bound_listeners: list[ListenerEndpoint] = []
        self.metrics = Metrics()
        self.metrics.series_max = lambda: config.metrics_series_max
        register_process_metrics(self.metrics)
        self.lifecycle = Lifecycle()
        self._metrics_address = metrics_address
        self._clock = clock or SystemClock()
        self._randomness = randomness or random.SystemRandom()
        self._files = files or RealFiles()
        self._sockets = sockets
        self._make_workers = make_workers
        self._open_store = open_store or open_coordination
        self._written_elsewhere_bytes_min = written_elsewhere_bytes_min
        self._dispatch_layer = dispatch_layer
        self._exits = AsyncExitStack()
        self._tasks = Tasks()
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Future[None] | None = None
        self._replicas: ReplicaManager | None = None
        self.halted = asyncio.Event()
        """Set when the broker cannot continue (`halt_reason`): its runner must shut it down."""
        self.halt_reason = ""
        self._member: ClusterMember | None = None
        self._inspected: InspectedParts | None = None
        self.metrics.gauge(
            "kafka_broker_state", "State of the broker, as Kafka's number.", lambda: self.lifecycle.state
        )
        self.metrics.gauge(
            "barnabas_build_info", "Release, and whether it is compiled.", lambda: 1,
            version=__version__, code=CODE,
        )  # fmt: skip

    @property
    def controller_epoch(self) -> int:
        """Epoch of this broker's term as the controller; -1 if it is not the controller."""
        return -1 if self._member is None else self._member.controller.epoch

    async def startup(self) -> None:
        """Raises StartAbandoned if the broker receives a stop meanwhile."""
        if not self.lifecycle.begin_startup():
            return
        self._replicas = self._member = None
        self._starting = asyncio.create_task(self._start(), name="broker-startup")
        try:
            await self._starting
        except asyncio.CancelledError:
            if self.lifecycle.state is BrokerState.STARTING:
                raise
            raise StartAbandoned("the broker received a stop while it started") from None

    async def _start(self) -> None:  # noqa: PLR0915 - the steps of the start, in their order
        ignored = without_effect(self.config.given)
        if ignored:
            logger.warning("configuration keys without effect in this broker: %s", ", ".join(ignored))
        work = self._make_loop_work()
        page = self._metrics_page(work.scheduler)
        missing = self._check_directories()
        znodes = await self._open_coordination(work)
        identity = await settle_identity(self._files, self.config, znodes, self._randomness, missing)
        self.broker_id, self.cluster_id = identity.broker_id, identity.cluster_id
        configs = ConfigRepository(ZnodeConfigStore(znodes), self.broker_id, self.config)
        await configs.load()
        acls = await self._exits.enter_async_context(open_acls(self.config, znodes, self._clock))

        sasl = await self._open_sasl(configs, znodes, work)
        metadata = MetadataCache(self.cluster_id)
        metadata.on_topic_removed.append(lambda topic, _: configs.remove_topic(topic))
        member = self._make_member(znodes, configs, metadata, work)
        log_manager = self._open_logs(configs, identity.unusable, work)
        tls = open_tls(self.config, configs, self._clock, work.scheduler, self.metrics)
        server = self._bind(work)
        server.report_unreadable = log_manager.region_unreadable
        await server.per_ip.open()
        timer = self._make_timer()
        replicas = self._make_replicas(log_manager, metadata, member, work, timer)
        with ExitStack() as unregistered:
            unregistered.callback(replicas.close)
            replicas.start()
            configs.on_broker_change(lambda _: self._settings_changed(log_manager, work.background))
            self._settings_changed(log_manager, work.background)
            await self._register(member)
            # The replicas close first, then the logs, under the epoch of the registration, which ends last.
            self._exits.callback(lambda: log_manager.close(member.registration.broker_epoch))
            self._exits.push(unregistered.pop_all())
        self._exits.callback(self._tasks.cancel)
        configs.on_topic_change(replicas.update_log_config)
        coordinators = await self._open_coordinators(znodes, configs, metadata, member, replicas, work, timer)
        services = self._make_services(
            znodes, configs, metadata, member, replicas, coordinators, acls, sasl.tokens, server.hosts
        )
        work.scheduler.every(SWEEP_INTERVAL_MS, services.telemetry.sweep)
        dispatcher = Dispatcher(services.apis, services, self._clock, self.metrics)
        self._exits.push_async_callback(dispatcher.close)
        await self._exits.enter_async_context(page)

        def answer_waiting() -> None:
            coordinators.groups.runtime.answer_waiting()
            replicas.delayed.answer_waiting()

        self._exits.push_async_callback(server.stop, deadline_ms=DRAIN_MS_MAX, answer_waiting=answer_waiting)
        self._exits.push_async_callback(member.stop_controller)
        await member.join(services, log_manager)
        log_manager.start()  # not before: an adopted topic has no settings yet, and retention would delete it
        dispatch: Dispatch = dispatcher.dispatch
        if self._dispatch_layer is not None:
            dispatch = self._dispatch_layer(dispatch, metadata)
        rates = ConnectionRates(configs.clients, self.config, self._clock, server.hosts)
        server.start(asyncio.get_running_loop(), dispatch, sasl.gates(dispatch), tls, rates)
        self._watch_loop(server, work)
        self._inspected = InspectedParts(
            services, self.metrics, server, member.peers, work.scheduler, self._tasks
        )
        await member.until_introduced()
        self.lifecycle.move_to(BrokerState.RUNNING)

    async def _open_coordinators(
        self,
        znodes: Coordination,
        configs: ConfigRepository,
        metadata: MetadataCache,
        member: ClusterMember,
        replicas: ReplicaManager,
        work: LoopWork,
        timer: Timer,
    ) -> Coordinators:
        coordinators = await self._exits.enter_async_context(
            open_coordinators(
                self.broker_id,
                self.config,
                znodes,
                configs,
                metadata,
                member.peers,
                replicas,
                clock=self._clock,
                scheduler=work.scheduler,
                timer=timer,
                randomness=self._randomness,
                metrics=self.metrics,
                tasks=self._tasks,
            )
        )
        if self._metrics_address is not None:
            show_group_lags(
                self.metrics, coordinators.groups, metadata, member.peers, replicas, self._clock,
                work.scheduler, self._tasks,
            )  # fmt: skip
        return coordinators

    async def serve_inspection(self) -> None:
        """Answer the tools of this machine at a private socket until the broker stops."""
        # Imported here: clients need not wait for it.
        from barnabas.node.inspection import serve_inspection  # noqa: PLC0415

        if self.lifecycle.state is BrokerState.RUNNING and self._inspected is not None:
            await self._exits.enter_async_context(serve_inspection(self._inspected))

    def _metrics_page(self, scheduler: LoopScheduler) -> AbstractAsyncContextManager[None]:
        """The page, if it has an address; INVALID_CONFIG if the settings do not protect it."""
        if self._metrics_address is None:
            return nullcontext()
        # Imported here: only a page needs an HTTP server.
        from barnabas.node.metrics_endpoint import metrics_page  # noqa: PLC0415

        return metrics_page(
            self._metrics_address, self.config, self.metrics, self.lifecycle, self._clock, scheduler
        )

    def _watch_loop(self, server: Server, work: LoopWork) -> None:
        """Sample the loop's lag for the metrics page, if there is one."""
        if self._metrics_address is not None:
            health = LoopHealth(self._clock, server.busy_poll)
            register_loop_metrics(self.metrics, health)
            health.start(work.scheduler)

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
        """Dependencies of the handlers."""
        groups, producer_ids, markers, transactions = coordinators
        return Services(
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            config=self.config,
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
            add_partitions_to_txn_manager=AddPartitionsToTxnManager(
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
            address_of=partial(hosts.address_of),
            telemetry=self._make_telemetry(configs),
            tokens=tokens,
        )

    def _make_telemetry(self, configs: ConfigRepository) -> ClientInstances:
        """Metrics that clients push (KIP-714), by the subscriptions of the cluster."""
        subscriptions = Subscriptions()
        configs.client_metrics.on_change(subscriptions.put)
        return ClientInstances(subscriptions, self._clock, self._randomness, self.metrics)

    async def shutdown(self) -> None:
        """Stop the broker. One of several concurrent calls does the work, and all return when it is done."""
        if self._stopping is not None:
            await asyncio.wait((self._stopping,))
            return
        self._stopping = asyncio.get_running_loop().create_future()
        try:
            await self._shut_down()
        finally:
            self._stopping.set_result(None)
            self._stopping = None

    async def _shut_down(self) -> None:
        if self._member is not None and self.lifecycle.state is BrokerState.RUNNING:
            self.lifecycle.move_to(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            await self._member.shut_down_controlled()
        if not self.lifecycle.begin_shutdown():
            return
        await self._abandon_start()
        await self._exits.aclose()
        self.lifecycle.move_to(BrokerState.NOT_RUNNING)

    async def _abandon_start(self) -> None:
        """Wait for the end of the start, so that no step runs during the shutdown."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait((self._starting,))

    # --- steps of the start, in their order ---

    def _make_loop_work(self) -> LoopWork:
        loop = asyncio.get_running_loop()
        scheduler = LoopScheduler(loop)
        self._exits.callback(scheduler.close)
        background = self._make_workers(loop, self.config.background_threads)
        self._exits.push_async_callback(background.close)
        return LoopWork(scheduler, background)

    def _check_directories(self) -> Mapping[str, OSError]:
        """Log directories whose disks are not mounted; raises if a directory belongs to another broker."""
        refuse_foreign_directories(self._files, self.config.log_dirs)
        missing = missing_directories(self._files, [str(path) for path in self.config.log_dirs])
        if self.config.owns_store:
            refuse_missing_store(self._files, self.config, missing)
        return missing

    async def _open_coordination(self, work: LoopWork) -> Coordination:
        store = self._open_store(self.config, self._clock, work.background)
        znodes = await self._exits.enter_async_context(measured(store, self._clock, self.metrics))
        znodes.add_listener(partial(self._store_changed, znodes))
        await make_persistent_paths(znodes)
        return znodes

    def _store_changed(self, znodes: Coordination, state: SessionState) -> None:
        """Stop when the embedded store fails: controller, topics, settings and producer ids depend on it."""
        if state is SessionState.LOST and znodes.failure is not None:
            self._halt(
                f"the coordination store cannot write: {znodes.failure}. Make room on its disk, or repair it,"
                " and start the broker again"
            )

    async def _open_sasl(
        self, configs: ConfigRepository, znodes: Coordination, work: LoopWork
    ) -> SaslListeners:
        tokens = make_delegation_tokens(self.config, znodes, self._clock, work.background, self.metrics)
        if tokens is not None:
            await self._exits.enter_async_context(following(znodes, tokens, "delegation tokens"))
            remove_expired_tokens(tokens, self.config, work.scheduler, self._tasks)
        sasl = SaslListeners(
            self.config,
            await follow_users(configs.clients, znodes, self.config.listeners),
            tokens,
            clock=self._clock,
            scheduler=work.scheduler,
            background=work.background,
            metrics=self.metrics,
            tasks=self._tasks,
        )
        await sasl.open(self.config.listeners)
        return sasl

    def _open_logs(
        self, configs: ConfigRepository, unusable: Mapping[str, OSError], work: LoopWork
    ) -> LogManager:
        environment = Environment(
            files=self._files,
            clock=self._clock,
            randomness=self._randomness,
            scheduler=work.scheduler,
            background=work.background,
            config=self.config,
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
        return log_manager

    def _settings_changed(self, log_manager: LogManager, background: Workers) -> None:
        """Resize the cleaner and the threads. Other settings are read where they are used."""
        log_manager.cleaner.reconfigure()
        background.resize(self.config.background_threads)

    def _directory_failed(self, directory: LogDirectory) -> None:
        """The partitions of a failed disk go offline; all others continue."""
        assert self._replicas is not None
        assert self._member is not None
        self._member.log_directory_failed(self._replicas.local.directory_failed(directory))
        if not self._replicas.log_manager.live_directories:
            self._halt(f"no log directory is left; the last was {directory.path}: {directory.failure}")

    def _halt(self, reason: str) -> None:
        if not self.halted.is_set():
            self.halt_reason = reason
            logger.critical("the broker stops: %s", reason)
            self.halted.set()

    def _log_failed(self, topic_partition: TopicPartition) -> None:
        """One log is unreadable: the controller elects another leader for its partition."""
        assert self._replicas is not None
        assert self._member is not None
        self._replicas.local.log_failed(topic_partition)
        self._member.log_directory_failed([topic_partition])

    def _bind(self, work: LoopWork) -> Server:
        """Bind the ports early, so that a conflict stops the start before recovery and registration."""
        server = Server(
            clock=self._clock,
            scheduler=work.scheduler,
            metrics=self.metrics,
            config=self.config,
            sockets=self._sockets,
            background=work.background,
        )
        server.frame_bytes_max_of = frame_bytes_max_of
        self._exits.callback(server.release)
        self.bound_listeners = [each.bound for each in server.bind(self.config.listeners)]
        return server

    def _make_member(
        self, znodes: Coordination, configs: ConfigRepository, metadata: MetadataCache, work: LoopWork
    ) -> ClusterMember:
        member = ClusterMember(
            self.broker_id,
            self.config,
            znodes,
            configs,
            metadata,
            clock=self._clock,
            scheduler=work.scheduler,
            randomness=self._randomness,
            metrics=self.metrics,
        )
        self._exits.push_async_callback(member.close)
        self._member = member
        return member

    def _make_timer(self) -> Timer:
        """The purgatory's timer, driven by the event loop."""
        timer = Timer(self._clock)
        driver = TimerDriver(asyncio.get_running_loop(), self._clock, timer)
        self._exits.callback(driver.close)
        return timer

    def _make_replicas(
        self,
        log_manager: LogManager,
        metadata: MetadataCache,
        member: ClusterMember,
        work: LoopWork,
        timer: Timer,
    ) -> ReplicaManager:
        tasks = ReplicationTasks(member.isr_store, member.peers.connect_to)
        self._exits.push_async_callback(tasks.close)
        replicas = ReplicaManager(
            self.broker_id,
            log_manager,
            self._clock,
            timer,
            self.metrics,
            isr_store=tasks,
            connect=tasks.connect,
            metadata=metadata,
            lease=member.registration.lease(),
            broker_epoch=lambda: member.registration.broker_epoch,
            scheduler=work.scheduler,
            background=work.background,
            config=self.config,
            defer=asyncio.get_running_loop().call_soon,
        )
        self._replicas = replicas
        log_manager.on_directory_failed.append(self._directory_failed)
        log_manager.on_log_failed.append(self._log_failed)
        return replicas

    async def _register(self, member: ClusterMember) -> None:
        """Register the broker in the cluster, until shutdown."""
        endpoints = advertised_endpoints(
            self.bound_listeners,
            self.config.advertised_listeners,
            must_be_reachable=not self.config.owns_store,
        )
        await member.registration.register(BrokerInfo(self.broker_id, endpoints, self.config.broker_rack))
        self._exits.push_async_callback(member.registration.unregister)
