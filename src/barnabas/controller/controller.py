"""Controller of a cluster: every broker has one, and one of them is active.

All compete for the ephemeral `/controller`. The broker that creates it begins a term (`term`), with the next
controller epoch taken in the same transaction. The others watch the node and compete again when it is deleted
or rewritten. A previously active controller resigns first. A term that cannot take over, or whose writes are
refused because there is a later one, ends at once. If `/controller` is still ours it is deleted, so that
another broker may try.

Losing the session with the store ends a term immediately, before any other event: the node may already belong
to another broker. Requests of administrators are events like all others.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from barnabas.cluster.coordination.contract import (
    BadVersion,
    Check,
    Coordination,
    CoordinationError,
    NoNode,
    SessionClosed,
    SessionExpired,
    Stat,
    StoreFailed,
)
from barnabas.cluster.coordination.store_retry import StoreRetry
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.cluster.znodes.layout import (
    ControllerEpochZnode,
    ControllerZnode,
    PartitionState,
    ReplicaAssignment,
)
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.config.log_config import LogConfig
from barnabas.controller.channels.broker_channels import BrokerChannels, StartSender
from barnabas.controller.channels.delivery import all_over
from barnabas.controller.election import Controllership, become_controller
from barnabas.controller.events import Event, EventQueue, Process
from barnabas.controller.machines.partition_machine import Election
from barnabas.controller.metrics import register_controller_metrics
from barnabas.controller.state.store import UNCLEAN_KEY, ControllerStore
from barnabas.controller.state.watches import Watching
from barnabas.controller.term import Term
from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError, NotController, StaleControllerEpoch
from barnabas.core.ids import NO_LEADER, BrokerId, Randomness, TopicPartition
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import Cancellable, Scheduler
from barnabas.core.waiting import within

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_REBALANCE_DELAY_MS: Final = 5_000
LAST_WORDS_MS: Final = 1_000.0
NO_SESSION: Final = 0
"""Owner of a node that is not ephemeral."""


class KafkaController:
    def __init__(
        self,
        znodes: Coordination,
        broker_id: BrokerId,
        configs: ConfigRepository,
        clock: Clock,
        scheduler: Scheduler,
        randomness: Randomness,
        start_sender: StartSender,
        metrics: Metrics,
        config: BrokerConfig,
    ) -> None:
        self._znodes = znodes
        self._broker_id = broker_id
        self._configs = configs
        self._clock = clock
        self._scheduler = scheduler
        self._randomness = randomness
        self._start_sender = start_sender
        self._metrics = metrics
        self._config = config
        self._retry = StoreRetry(znodes, scheduler)
        self._store = ControllerStore(znodes, self._retry)
        self._watching = Watching()
        self._term: Term | None = None
        self._rebalance: Cancellable | None = None
        self.active_controller_id: BrokerId = NO_LEADER
        """Controller as far as this broker knows."""
        self.events = EventQueue(self._process, clock, metrics)
        configs.on_topic_change(self._topic_config_changed)
        configs.on_broker_change(self._broker_config_changed)
        register_controller_metrics(metrics, lambda: self._term)

    @property
    def is_active(self) -> bool:
        return self._term is not None

    @property
    def epoch(self) -> int:
        """Controller epoch of the present term; -1 if there is none."""
        return -1 if self._term is None else self._term.epoch

    @property
    def term(self) -> Term | None:
        return self._term

    async def start(self) -> None:
        """Compete for the controllership; returns once the first election is decided."""
        self.events.start()
        await self.events.call("startup", self._elect)

    async def until_told(self, timeout_ms: float | None) -> None:
        """Wait until this broker has carried out the controller's requests so far, if it is the controller.

        The events that follow from their responses are included.
        """
        if timeout_ms is None:
            await self._until_told()
        else:
            await within(timeout_ms, self._until_told(), self._scheduler)

    async def _until_told(self) -> None:
        for _ in range(2):
            if self._term is not None:
                await all_over(self._term.channels.undelivered(self._broker_id))
                await self.events.call("wait", self._nothing)

    async def close(self) -> None:
        """Resign if necessary, and process no further event.

        The requests of the last events are delivered first. Otherwise the leaders elected in this broker's
        own controlled shutdown would stay unknown until the next controller takes over.
        """
        term = self._term
        if term is not None and (undelivered := term.channels.undelivered()):
            await self._at_last(all_over(undelivered))
        self._end_term()
        await self.events.close()
        if term is not None:
            try:
                if not await self._at_last(self._give_up_node()):
                    logger.info("/controller is not deleted in time and ends with the session")
            except CoordinationError as error:
                logger.info("/controller is not deleted and ends with the session: %r", error)

    async def _at_last(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run `work`, but give it up if it takes long."""
        return await within(LAST_WORDS_MS, work, self._scheduler)

    # --- session ---

    def session_expired(self) -> None:
        """End the term at once: without its session this broker is not the controller any more."""
        self._end_term()
        self._watching.session_lost()
        self.active_controller_id = NO_LEADER
        self.events.clear_and_put("session expired", self._nothing)

    def session_renewed(self) -> None:
        """Compete again in the new session."""
        self.events.put("reelection", self._elect, key="elect")

    async def _nothing(self) -> None:
        """Event without work, which marks a position in the queue."""

    # --- election ---

    async def _elect(self) -> None:
        found = await self._watching.data(self._store, ControllerZnode.PATH, self._controller_changed)
        if found is not None:
            await self._recognise(_named(found[0]), found[1])
            return
        self._end_term()
        self.active_controller_id = NO_LEADER
        try:
            controllership = await self._become_controller()
        except NotController:
            self.events.put("reelection", self._elect, key="elect")
            return
        except MalformedZnode as error:
            await self._await_epoch(error)
            return
        await self._begin_term(controllership)

    async def _recognise(self, named: BrokerId, stat: Stat) -> None:
        """React to an existing `/controller`.

        A node of our session that names another broker, or that belongs to no term of ours, is deleted, and
        an election follows. The same holds for an unreadable node without a session. An unreadable node of
        another session is left to its owner.
        """
        self.active_controller_id = named
        is_own = stat.ephemeral_owner == self._znodes.session_id
        if is_own and named == self._broker_id and self._term is not None:
            return
        self._end_term()
        if is_own:
            await self._give_up_node()
        elif named == NO_LEADER and stat.ephemeral_owner == NO_SESSION:
            logger.warning(
                "%s names no broker and belongs to no session; it is removed", ControllerZnode.PATH
            )
            await self._delete_node(stat)

    async def _await_epoch(self, error: MalformedZnode) -> None:
        """Wait until `/controller_epoch` is repaired, then compete again.

        Without a readable epoch none can be taken, and brokers would refuse one that is guessed too low.
        """
        logger.error("no controller can be elected until /controller_epoch is repaired: %s", error)
        found = await self._watching.data(self._store, ControllerEpochZnode.PATH, self._controller_changed)
        if found is None or _is_epoch(found[0]):
            self._controller_changed()

    async def _become_controller(self) -> Controllership:
        """Take the node and the next epoch; after a lost response, look up what happened."""
        before = await self._store.get(ControllerEpochZnode.PATH)
        expected = (0 if before is None else ControllerEpochZnode.decode(before[0])) + 1
        lost = False

        async def attempt() -> Controllership:
            nonlocal lost
            if lost:
                own = await self._own_controllership(expected)
                if own is not None:
                    return own
            lost = True
            return await become_controller(self._znodes, self._broker_id, self._clock)

        return await self._retry.until_answered(attempt)

    async def _own_controllership(self, expected_epoch: int) -> Controllership | None:
        """Controllership from an election whose response was lost, or None if it failed."""
        node = await self._store.get(ControllerZnode.PATH)
        epoch = await self._store.get(ControllerEpochZnode.PATH)
        if node is None or epoch is None or node[1].ephemeral_owner != self._znodes.session_id:
            return None
        if ControllerEpochZnode.decode(epoch[0]) != expected_epoch:
            return None
        return Controllership(expected_epoch, (Check(ControllerEpochZnode.PATH, epoch[1].version),))

    async def _begin_term(self, controllership: Controllership) -> None:
        logger.info(
            "broker %d is the controller (controller epoch %d)", self._broker_id, controllership.epoch
        )
        channels = BrokerChannels(self._start_sender, self._clock, self._metrics)

        def enqueue(kind: str, process: Process, *, key: str | None = None) -> None:
            self._put_for(term, kind, process, key)

        term = Term(
            self._broker_id,
            controllership.epoch,
            ControllerStore(self._znodes, self._retry, controllership.guard),
            self._watching,
            channels,
            self._configs,
            self._randomness,
            self._metrics,
            self._config,
            enqueue,
            self._check_controller,
        )
        self._term = term
        self.active_controller_id = self._broker_id
        # The node's creation fired its watch, so it must be set again.
        await self._watching.existence(self._store, ControllerZnode.PATH, self._controller_changed)
        try:
            await term.take_over()
        except StaleControllerEpoch:
            raise
        except Exception:
            logger.exception("broker %d resigns: taking over as the controller failed", self._broker_id)
            self._end_term()
            await self._give_up_node()
            return
        self._schedule_rebalance(FIRST_REBALANCE_DELAY_MS)

    def _controller_changed(self) -> None:
        self.events.put("controller change", self._elect, key="elect")

    def _check_controller(self) -> None:
        """Compete again, because a broker has reported a later controller."""
        self.events.put("controller change", self._elect, key="elect")

    async def _give_up_node(self) -> None:
        """Delete `/controller` if it belongs to this session, so that another broker is elected."""
        found = await self._store.get(ControllerZnode.PATH)
        if found is not None and found[1].ephemeral_owner == self._znodes.session_id:
            await self._delete_node(found[1])

    async def _delete_node(self, stat: Stat) -> None:
        try:
            await self._znodes.delete(ControllerZnode.PATH, stat.version)
        except (NoNode, BadVersion):
            logger.debug("%s was deleted or rewritten meanwhile", ControllerZnode.PATH)

    def _end_term(self) -> None:
        term, self._term = self._term, None
        if term is None:
            return
        logger.info("broker %d resigns as the controller (controller epoch %d)", self._broker_id, term.epoch)
        if self._rebalance is not None:
            self._rebalance.cancel()
            self._rebalance = None
        term.close()

    # --- events ---

    def _put_for(self, term: Term, kind: str, process: Process, key: str | None) -> None:
        async def in_term() -> None:
            if self._term is term:
                await process()

        if self._term is term:
            self.events.put(kind, in_term, key=None if key is None else (term.epoch, key))

    async def _process(self, event: Event) -> None:
        """Process one event, then flush the batch, even if the event failed half-way.

        Changes that were written to the store must reach the brokers.
        """
        try:
            await event.process()
        except StaleControllerEpoch as error:
            logger.info("controller event %s: %s; broker resigns", event.kind, error.message)
            await self._resign()
        except KafkaError as error:
            logger.info("controller event %s: %s", event.kind, error.message)
        except (SessionExpired, SessionClosed, StoreFailed) as error:
            logger.warning("controller event %s ended with the session: %r", event.kind, error)
        except Exception:
            logger.exception("controller event %s failed", event.kind)
        if self._term is not None:
            self._term.batch.flush()

    async def _resign(self) -> None:
        self._end_term()
        try:
            await self._elect()
        except (CoordinationError, KafkaError) as error:
            logger.warning("the active controller is not known yet: %r", error)

    async def _in_term(self, kind: str, process: Callable[[Term], Awaitable[T]]) -> T:
        """Run a request as an event; NOT_CONTROLLER if this broker is not the controller."""

        async def run() -> T:
            term = self._term
            if term is None:
                raise NotController("this broker is not the controller")
            try:
                return await process(term)
            finally:
                if self._term is term:
                    term.batch.flush()

        if self._term is None:
            raise NotController("this broker is not the controller")
        try:
            return await self.events.call(kind, run)
        except (StaleControllerEpoch, CoordinationError) as error:
            raise NotController("this broker is no longer the controller") from error

    # --- requests of administrators and brokers ---

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leaderships off a broker that is about to stop; returns the partitions that it still leads."""
        return await self._in_term(
            "controlled shutdown", lambda term: term.brokers.controlled_shutdown(broker_id, broker_epoch)
        )

    async def elect_leaders(
        self, election: Election, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionState | KafkaError]:
        """Elect leaders of these partitions, or of all; the new state of each, or the error."""
        return await self._in_term("leader election", lambda term: term.elections.elect(election, partitions))

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Reassign partitions, or cancel their reassignments (None); per partition None or the error."""
        return await self._in_term(
            "reassignment",
            lambda term: term.reassignment.alter(
                targets, allow_replication_factor_change=allow_replication_factor_change
            ),
        )

    async def list_partition_reassignments(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Ongoing reassignments."""

        async def ongoing(term: Term) -> dict[TopicPartition, ReplicaAssignment]:
            return term.reassignment.ongoing(partitions)

        return await self._in_term("list reassignments", ongoing)

    # --- settings and the leader rebalance ---

    def _topic_config_changed(self, topic: str, config: LogConfig) -> None:
        term = self._term
        if term is not None and config.unclean_leader_election_enable:
            self._put_for(
                term, "unclean election enabled", lambda: term.unclean_election_enabled((topic,)), None
            )

    def _broker_config_changed(self, changed: Collection[str]) -> None:
        term = self._term
        if (
            term is not None
            and UNCLEAN_KEY in changed
            and self._configs.broker_config.unclean_leader_election_enable
        ):
            self._put_for(
                term, "unclean election enabled", lambda: term.unclean_election_enabled(None), "unclean"
            )

    def _schedule_rebalance(self, delay_ms: float) -> None:
        term = self._term
        if term is None or not self._config.auto_leader_rebalance_enable:
            return

        async def rebalance() -> None:
            try:
                await term.rebalance()
            finally:
                self._schedule_rebalance(1_000.0 * self._config.leader_imbalance_check_interval_seconds)

        self._rebalance = self._scheduler.after(
            delay_ms, lambda: self._put_for(term, "leader rebalance", rebalance, "rebalance")
        )


def _named(data: bytes) -> BrokerId:
    """Broker id in `/controller`; NO_LEADER if it cannot be read."""
    try:
        return ControllerZnode.decode(data)
    except MalformedZnode as error:
        logger.error("%s cannot be read: %s", ControllerZnode.PATH, error)
        return NO_LEADER


def _is_epoch(data: bytes) -> bool:
    try:
        ControllerEpochZnode.decode(data)
    except MalformedZnode:
        return False
    return True
