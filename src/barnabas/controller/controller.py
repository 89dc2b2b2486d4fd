"""The controller of a cluster: every broker has one, and one of them is active.

All compete for the ephemeral `/controller`. Who gets it begins a term (`term`), with the next
controller epoch taken in the same transaction; the others watch and compete again when the node goes
away or is rewritten. Whoever was active resigns first. A term that cannot take over, or whose writes
are refused because there is a later one, is over at once; if `/controller` is still ours it is
deleted, so that someone else may try.

Losing the session with the store ends a term immediately, before anything else is processed: the
node may belong to another broker already. Requests of administrators are events like all others.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from barnabas.cluster.coordination import (
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
from barnabas.cluster.znode_json import MalformedZnode
from barnabas.cluster.znodes import (
    ControllerEpochZnode,
    ControllerZnode,
    PartitionState,
    ReplicaAssignment,
)
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.log_config import LogConfig
from barnabas.config.repository import ConfigRepository
from barnabas.controller.broker_channels import BrokerChannels, StartSender
from barnabas.controller.controller_election import Controllership, become_controller
from barnabas.controller.controller_metrics import register_controller_metrics
from barnabas.controller.delivery import all_over
from barnabas.controller.events import Event, EventQueue, Process
from barnabas.controller.partition_machine import Election
from barnabas.controller.patience import Patience
from barnabas.controller.store import UNCLEAN_KEY, ControllerStore
from barnabas.controller.term import Term
from barnabas.controller.watching import Watching
from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError, NotController, StaleControllerEpoch
from barnabas.core.ids import NO_LEADER, BrokerId, Randomness, TopicPartition
from barnabas.core.metrics import Metrics
from barnabas.core.scheduler import Cancellable, Scheduler
from barnabas.core.waiting import Runner, within

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_REBALANCE_DELAY_MS: Final = 5_000
LAST_WORDS_MS: Final = 1_000.0
NO_SESSION: Final = 0
"""The owner of a node that is not ephemeral."""


class KafkaController:
    def __init__(
        self,
        znodes: Coordination,
        broker_id: BrokerId,
        configs: ConfigRepository,
        clock: Clock,
        scheduler: Scheduler,
        randomness: Randomness,
        runner: Runner,
        start_sender: StartSender,
        metrics: Metrics,
        settings: BrokerConfig | None = None,
    ) -> None:
        self._znodes = znodes
        self._broker_id = broker_id
        self._configs = configs
        self._clock = clock
        self._scheduler = scheduler
        self._randomness = randomness
        self._runner = runner
        self._start_sender = start_sender
        self._metrics = metrics
        self._settings = settings or BrokerConfig.load({})
        self._patience = Patience(znodes, scheduler, runner)
        self._store = ControllerStore(znodes, self._patience)
        self._watching = Watching()
        self._term: Term | None = None
        self._rebalance: Cancellable | None = None
        self.active_controller_id: BrokerId = NO_LEADER
        """Who is the controller, as far as this broker knows."""
        self.events = EventQueue(self._process, clock, runner, metrics)
        configs.on_topic_change(self._topic_config_changed)
        configs.on_broker_change(self._broker_config_changed)
        register_controller_metrics(metrics, lambda: self._term)

    @property
    def is_active(self) -> bool:
        return self._term is not None

    @property
    def epoch(self) -> int:
        """Of the present term; -1 if there is none."""
        return -1 if self._term is None else self._term.epoch

    @property
    def term(self) -> Term | None:
        return self._term

    async def start(self) -> None:
        """Compete; returns once it is decided for the first time who is the controller."""
        self.events.start()
        await self.events.call("startup", self._elect)

    async def until_told(self, timeout_ms: float | None) -> None:
        """Wait, if this broker is the controller, until it has itself done what it was told so far, and what
        came of that."""
        if timeout_ms is None:
            await self._until_told()
        else:
            await within(timeout_ms, self._until_told(), self._runner, self._scheduler)

    async def _until_told(self) -> None:
        for _ in range(2):
            if self._term is not None:
                await all_over(self._term.channels.undelivered(self._broker_id), self._runner)
                await self.events.call("wait", self._nothing)

    async def close(self) -> None:
        """Resign, if need be, and process nothing more. What was decided is told first: the leaders that
        this broker's own shutdown has made would be known to nobody until the next controller speaks."""
        term = self._term
        if term is not None and (undelivered := term.channels.undelivered()):
            await self._at_last(all_over(undelivered, self._runner))
        self._end_term()
        await self.events.close()
        if term is not None:
            try:
                if not await self._at_last(self._give_up_node()):
                    logger.info("the controller's node is left to the end of the session")
            except CoordinationError as error:
                logger.info("the controller's node is left to the end of the session: %r", error)

    async def _at_last(self, work: Coroutine[Any, Any, None]) -> bool:
        """What need not be done, if it takes long."""
        return await within(LAST_WORDS_MS, work, self._runner, self._scheduler)

    # The session

    def session_expired(self) -> None:
        """The session is over: this broker is not the controller any more, from this moment on."""
        self._end_term()
        self._watching.session_lost()
        self.active_controller_id = NO_LEADER
        self.events.clear_and_put("session expired", self._nothing)

    def session_renewed(self) -> None:
        """There is a new session: compete again."""
        self.events.put("reelection", self._elect, key="elect")

    async def _nothing(self) -> None:
        """The work was done before the event was queued; what came before it is gone."""

    # Election

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
        """There is a controller. A node of our session that names somebody else, or that no term goes
        with, is nobody's: it is given up, and somebody is elected. So is one that names nobody and goes
        with no session; one of another session is left to whoever made it."""
        self.active_controller_id = named
        is_own = stat.ephemeral_owner == self._znodes.session_id
        if is_own and named == self._broker_id and self._term is not None:
            return
        self._end_term()
        if is_own:
            await self._give_up_node()
        elif named == NO_LEADER and stat.ephemeral_owner == NO_SESSION:
            logger.warning("%s names nobody and belongs to no session: it is removed", ControllerZnode.PATH)
            await self._delete_node(stat)

    async def _await_epoch(self, error: MalformedZnode) -> None:
        """No epoch can be taken, and one that is guessed too low is refused by every broker: somebody
        has to mend the node, and then there is an election."""
        logger.error("nobody becomes the controller: %s", error)
        found = await self._watching.data(self._store, ControllerEpochZnode.PATH, self._controller_changed)
        if found is None or _is_epoch(found[0]):
            self._controller_changed()

    async def _become_controller(self) -> Controllership:
        """Take the node and the next epoch; a lost answer is looked up."""
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

        return await self._patience.until_answered(attempt)

    async def _own_controllership(self, expected_epoch: int) -> Controllership | None:
        """What an election whose answer was lost came to."""
        node = await self._store.get(ControllerZnode.PATH)
        epoch = await self._store.get(ControllerEpochZnode.PATH)
        if node is None or epoch is None or node[1].ephemeral_owner != self._znodes.session_id:
            return None
        if ControllerEpochZnode.decode(epoch[0]) != expected_epoch:
            return None
        return Controllership(expected_epoch, (Check(ControllerEpochZnode.PATH, epoch[1].version),))

    async def _begin_term(self, controllership: Controllership) -> None:
        logger.info("broker %d is the controller with epoch %d", self._broker_id, controllership.epoch)
        channels = BrokerChannels(self._start_sender, self._clock, self._metrics)

        def enqueue(kind: str, process: Process, *, key: str | None = None) -> None:
            self._put_for(term, kind, process, key)

        term = Term(
            self._broker_id,
            controllership.epoch,
            ControllerStore(self._znodes, self._patience, controllership.guard),
            self._watching,
            channels,
            self._configs,
            self._randomness,
            self._metrics,
            self._settings,
            enqueue,
            self._look_who_controls,
        )
        self._term = term
        self.active_controller_id = self._broker_id
        # The node's creation fired the watch that waited for it; it must be watched again.
        await self._watching.existence(self._store, ControllerZnode.PATH, self._controller_changed)
        try:
            await term.take_over()
        except StaleControllerEpoch:
            raise
        except Exception:
            logger.exception("taking over as the controller failed; this broker resigns")
            self._end_term()
            await self._give_up_node()
            return
        self._schedule_rebalance(FIRST_REBALANCE_DELAY_MS)

    def _controller_changed(self) -> None:
        self.events.put("controller change", self._elect, key="elect")

    def _look_who_controls(self) -> None:
        """A broker says that there is a later controller."""
        self.events.put("controller change", self._elect, key="elect")

    async def _give_up_node(self) -> None:
        """Delete `/controller` if it is this session's, so that somebody is elected."""
        found = await self._store.get(ControllerZnode.PATH)
        if found is not None and found[1].ephemeral_owner == self._znodes.session_id:
            await self._delete_node(found[1])

    async def _delete_node(self, stat: Stat) -> None:
        try:
            await self._znodes.delete(ControllerZnode.PATH, stat.version)
        except (NoNode, BadVersion):
            logger.debug("the controller's node changed hands")

    def _end_term(self) -> None:
        term, self._term = self._term, None
        if term is None:
            return
        logger.info("broker %d resigns as the controller of epoch %d", self._broker_id, term.epoch)
        if self._rebalance is not None:
            self._rebalance.cancel()
            self._rebalance = None
        term.close()

    # Events

    def _put_for(self, term: Term, kind: str, process: Process, key: str | None) -> None:
        async def in_term() -> None:
            if self._term is term:
                await process()

        if self._term is term:
            self.events.put(kind, in_term, key=None if key is None else (term.epoch, key))

    async def _process(self, event: Event) -> None:
        """Process one event, then tell the brokers what came of it, even if it failed half-way:
        what was written to the store must reach them."""
        try:
            await event.process()
        except StaleControllerEpoch as error:
            logger.info("%s: %s; this broker resigns", event.kind, error.message)
            await self._resign()
        except KafkaError as error:
            logger.info("%s: %s", event.kind, error.message)
        except (SessionExpired, SessionClosed, StoreFailed) as error:
            logger.warning("%s ended with the session: %r", event.kind, error)
        except Exception:
            logger.exception("the event '%s' failed", event.kind)
        if self._term is not None:
            self._term.batch.flush()

    async def _resign(self) -> None:
        self._end_term()
        try:
            await self._elect()
        except (CoordinationError, KafkaError) as error:
            logger.warning("the new controller is not known yet: %r", error)

    async def _in_term(self, kind: str, process: Callable[[Term], Awaitable[T]]) -> T:
        """Run an administrator's request as an event; NOT_CONTROLLER if this broker is not."""

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

    # What administrators and brokers ask for

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leaderships off a broker that is about to stop; returns what it still leads."""
        return await self._in_term(
            "controlled shutdown", lambda term: term.brokers.controlled_shutdown(broker_id, broker_epoch)
        )

    async def elect_leaders(
        self, election: Election, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionState | KafkaError]:
        """Elect leaders of these partitions, or of all; the new state of each, or why there is none."""
        return await self._in_term("leader election", lambda term: term.elections.elect(election, partitions))

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move partitions, or cancel their moves (None); per partition None or what was wrong."""
        return await self._in_term(
            "reassignment",
            lambda term: term.reassignment.alter(
                targets, allow_replication_factor_change=allow_replication_factor_change
            ),
        )

    async def list_partition_reassignments(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """The moves under way."""

        async def ongoing(term: Term) -> dict[TopicPartition, ReplicaAssignment]:
            return term.reassignment.ongoing(partitions)

        return await self._in_term("list reassignments", ongoing)

    # Settings and the balance of leaders

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
        if term is None or not self._settings.auto_leader_rebalance_enable:
            return

        async def rebalance() -> None:
            try:
                await term.rebalance()
            finally:
                self._schedule_rebalance(1_000.0 * self._settings.leader_imbalance_check_interval_seconds)

        self._rebalance = self._scheduler.after(
            delay_ms, lambda: self._put_for(term, "leader rebalance", rebalance, "rebalance")
        )


def _named(data: bytes) -> BrokerId:
    """Who is the controller according to its node; nobody if that cannot be read."""
    try:
        return ControllerZnode.decode(data)
    except MalformedZnode as error:
        logger.error("%s names nobody: %s", ControllerZnode.PATH, error)
        return NO_LEADER


def _is_epoch(data: bytes) -> bool:
    try:
        ControllerEpochZnode.decode(data)
    except MalformedZnode:
        return False
    return True
