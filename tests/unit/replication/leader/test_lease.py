"""Leadership lease: a broker whose session ended promises nothing before the controller confirms it."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cluster.coordination.contract import ConnectionLoss
from barnabas.coordinator.runtime.log import CoordinatorLog
from barnabas.core.errors import NONE, NotLeaderOrFollower, StaleControllerEpoch
from barnabas.core.ids import BrokerId
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.replication.leader.delayed_delete_records import PendingDeletion
from barnabas.replication.leader.isr_changes import RETRY_MS
from barnabas.replication.partition.lease import LeadershipLease
from barnabas.replication.partition.partition import Partition
from tests.support.manual_time import ManualClock
from tests.unit.replication.leader.test_isr_changes import Store
from tests.unit.replication.support import ME, OTHER, TOPIC_ID, ZERO, Replicas, is_answered
from tests.unit.storage.support import batch

OLD, NEW = 10, 20
UNKNOWN_EPOCH = -1
LAG_MS = 30_000


class Session:
    """The broker's session with the store, and the presence that it registered in it."""

    def __init__(self) -> None:
        self.expires_ms = float("inf")
        self.epoch: int | None = OLD

    def renew(self, epoch: int | None) -> None:
        """A new session; `epoch` is None until the broker is registered in it."""
        self.expires_ms = float("inf")
        self.epoch = epoch


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def replicas(tmp_path: Path, session: Session, store: Store) -> Replicas:
    return Replicas(
        str(tmp_path),
        store=store,
        lease=lambda clock: LeadershipLease(clock, lambda: session.expires_ms, lambda: session.epoch),
    )


def order(
    replicas: Replicas,
    *,
    broker_epoch: int,
    leader: int = ME,
    leader_epoch: int = 0,
    version: int = 0,
    isr: tuple[int, ...] = (ME, OTHER),
) -> int:
    state = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(isr),
        partition_epoch=version,
        replicas=[ME, OTHER],
        is_new=True,
    )
    topic = LeaderAndIsrTopicState(topic_name=ZERO.topic, topic_id=TOPIC_ID, partition_states=[state])
    request = LeaderAndIsrRequest(controller_epoch=1, broker_epoch=broker_epoch, topic_states=[topic])
    answer = replicas.order(request)
    return answer.topics[0].partition_errors[0].error_code


def lead(replicas: Replicas) -> Partition:
    assert order(replicas, broker_epoch=OLD) == NONE
    return replicas.partition(*ZERO)


def refuses(replicas: Replicas, partition: Partition) -> bool:
    """Every way to promise something is taken, and either all are open or none is."""
    refused = []
    for acks in (0, 1, -1):
        try:
            replicas.append(partition, acks=acks)
        except NotLeaderOrFollower:
            refused.append(True)
        else:
            refused.append(False)
    log = CoordinatorLog(replicas)
    outcomes: list[object] = []
    log.await_replication(ZERO, partition.leadership.leader_epoch, 0, 1_000, outcomes.append)
    refused.append(isinstance(outcomes[0], NotLeaderOrFollower))
    try:
        log.append(ZERO, partition.leadership.leader_epoch, batch([b"a coordinator's"]))
    except NotLeaderOrFollower:
        refused.append(True)
    else:
        refused.append(False)
    try:
        partition.delete_records_before(0)
    except NotLeaderOrFollower:
        refused.append(True)
    else:
        refused.append(False)
    assert len(set(refused)) == 1, refused
    return refused[0]


def test_a_lease_ends_with_its_time_or_with_its_session() -> None:
    clock, session = ManualClock(), Session()
    lease = LeadershipLease(clock, lambda: session.expires_ms, lambda: session.epoch)
    session.expires_ms = clock.monotonic_ms() + 100
    assert lease.covers(OLD)
    assert not lease.covers(None)
    assert not lease.covers(NEW)
    clock.advance(100)
    assert not lease.covers(OLD)
    session.renew(None)
    assert not lease.covers(OLD)
    assert not lease.covers(None), "who is not registered leads nothing"
    session.renew(NEW)
    assert not lease.covers(OLD)
    assert lease.covers(NEW)


def test_a_new_session_confirms_nothing(replicas: Replicas, session: Session) -> None:
    partition = lead(replicas)
    assert not refuses(replicas, partition)
    session.expires_ms = float("-inf")
    assert refuses(replicas, partition)
    session.renew(None)
    assert refuses(replicas, partition), "before it is registered"
    session.renew(NEW)
    assert refuses(replicas, partition), "before the controller has spoken"


def test_orders_for_the_previous_presence_confirm_nothing(replicas: Replicas, session: Session) -> None:
    """They were on their way when the session was lost."""
    partition = lead(replicas)
    session.renew(None)
    assert order(replicas, broker_epoch=OLD, version=1) == NONE
    assert refuses(replicas, partition)
    session.renew(NEW)
    assert refuses(replicas, partition)


def test_the_controller_confirms_with_news(replicas: Replicas, session: Session) -> None:
    partition = lead(replicas)
    session.renew(NEW)
    assert order(replicas, broker_epoch=NEW, leader_epoch=2, version=3) == NONE
    assert not refuses(replicas, partition)


@pytest.mark.parametrize("version", [4, 5])
def test_the_controller_confirms_by_repeating_itself(
    replicas: Replicas, session: Session, version: int
) -> None:
    """A new controller that finds the leader registered leaves it its epoch."""
    partition = lead(replicas)
    assert order(replicas, broker_epoch=OLD, version=5) == NONE
    session.renew(NEW)
    assert order(replicas, broker_epoch=NEW, version=version) == StaleControllerEpoch.code
    assert not refuses(replicas, partition)


def test_an_order_of_a_previous_leader_epoch_confirms_nothing(replicas: Replicas, session: Session) -> None:
    partition = lead(replicas)
    assert order(replicas, broker_epoch=OLD, leader_epoch=2, version=1) == NONE
    session.renew(NEW)
    assert order(replicas, broker_epoch=NEW, leader_epoch=1) == StaleControllerEpoch.code
    assert refuses(replicas, partition)


def test_the_order_may_come_before_the_answer_to_the_registration(
    replicas: Replicas, session: Session
) -> None:
    partition = lead(replicas)
    session.renew(None)
    assert order(replicas, broker_epoch=NEW, leader_epoch=1, version=1) == NONE
    assert refuses(replicas, partition)
    session.renew(NEW)
    assert not refuses(replicas, partition)


def test_a_controller_that_knows_no_broker_epochs_is_believed(replicas: Replicas, session: Session) -> None:
    partition = lead(replicas)
    session.renew(NEW)
    assert order(replicas, broker_epoch=UNKNOWN_EPOCH, leader_epoch=1, version=1) == NONE
    assert not refuses(replicas, partition)


def test_who_waits_is_not_acknowledged_by_a_session_that_heard_nothing(
    replicas: Replicas, session: Session
) -> None:
    partition = lead(replicas)
    waiting = replicas.await_ack(partition, replicas.append(partition), -1)
    deletion = PendingDeletion(partition, 0)
    session.renew(NEW)
    replicas.fetched(partition, OTHER, 1, 0)
    assert is_answered(waiting)
    assert waiting.error_code == NotLeaderOrFollower.code
    replicas.await_deletion(1_000, [deletion], lambda: None)
    assert deletion.error_code == NotLeaderOrFollower.code


def test_who_waits_is_acknowledged_once_the_leadership_is_confirmed(
    replicas: Replicas, session: Session
) -> None:
    partition = lead(replicas)
    waiting = replicas.await_ack(partition, replicas.append(partition), -1)
    session.renew(NEW)
    order(replicas, broker_epoch=NEW)
    assert not is_answered(waiting)
    replicas.fetched(partition, OTHER, 1, 0)
    assert waiting.error_code == NONE


def test_no_isr_is_proposed_before_the_controller_has_spoken(
    replicas: Replicas, session: Session, store: Store
) -> None:
    partition = lead(replicas)
    store.answers = [1, 2]
    replicas.append(partition)
    session.renew(NEW)
    replicas.clock.advance(LAG_MS + 1)
    replicas.isr.shrink_all([partition])
    assert partition.leadership.pending_isr is None
    order(replicas, broker_epoch=NEW)
    replicas.isr.shrink_all([partition])
    replicas.scheduler.run_due()
    assert partition.leadership.isr == {ME}
    session.renew(NEW + 1)
    replicas.fetched(partition, OTHER, 1, 0)
    assert partition.leadership.pending_isr is None
    order(replicas, broker_epoch=NEW + 1)
    replicas.fetched(partition, OTHER, 1, 0)
    replicas.scheduler.run_due()
    assert partition.leadership.isr == {ME, BrokerId(OTHER)}


def test_an_isr_that_could_not_be_written_waits_for_the_controllers_word(
    replicas: Replicas, session: Session, store: Store
) -> None:
    partition = lead(replicas)
    store.answers = [ConnectionLoss(), 1]
    replicas.append(partition)
    replicas.clock.advance(LAG_MS + 1)
    replicas.isr.shrink_all([partition])
    replicas.scheduler.run_due()
    assert len(store.written) == 1
    session.renew(NEW)
    replicas.clock.advance(RETRY_MS)
    replicas.scheduler.run_due()
    assert len(store.written) == 1
    order(replicas, broker_epoch=NEW)
    replicas.clock.advance(RETRY_MS)
    replicas.scheduler.run_due()
    assert partition.leadership.isr == {ME}
