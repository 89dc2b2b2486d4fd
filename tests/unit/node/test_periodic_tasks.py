"""Every periodic task, with one element or one run of it broken.

`PERIODIC` names the modules that start periodic tasks. A module that is missing here, or that starts none any
more, fails the first test. Long-lived tasks, which wait and work in turns, follow.
"""

from __future__ import annotations

import ast
import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.unit.coordinator.support import Groups
from tests.unit.coordinator.transaction_support import A, B, Transactions
from tests.unit.storage.support import produce
from tests.unit.storage.test_log_manager import Broker, partition

import barnabas
from barnabas.cluster.coordination.contract import Coordination, SessionState
from barnabas.cluster.embedded.session import open_embedded
from barnabas.cluster.metadata.cache import MetadataCache, PartitionMetadata, TopicMetadata
from barnabas.cluster.stores.delegation_tokens import DelegationTokens
from barnabas.cluster.stores.isr_store import CHECK_INTERVAL_MS, ZnodeIsrStore
from barnabas.config.log_config import LogConfig
from barnabas.controller.channels.broker_channels import BrokerChannels
from barnabas.controller.channels.delivery import all_over
from barnabas.coordinator.group.offsets.expiry import OffsetRemoval
from barnabas.coordinator.group.offsets.remote_end_offsets import RemoteEndOffsets
from barnabas.coordinator.runtime.timers import ShardTimers
from barnabas.coordinator.transaction.shard import TransactionShard
from barnabas.core.backoff import Backoff
from barnabas.core.clock import SystemClock
from barnabas.core.ids import BrokerId, TopicPartition, Uuid
from barnabas.core.reporting.metrics import Metrics, render_prometheus
from barnabas.core.scheduler import InlineBackground
from barnabas.core.tasks import Tasks
from barnabas.network.connection_limits import ConnectionLimits
from barnabas.network.handshakes import Handshakes
from barnabas.network.server import Server
from barnabas.node.membership import store_watcher
from barnabas.node.membership.controller_channels import ControllerChannels
from barnabas.node.membership.store_watcher import following
from barnabas.node.runtime import LoopScheduler, TimerDriver
from barnabas.node.security import jwks
from barnabas.node.security.jwks import TokenVerifier
from barnabas.processes.supervisor import Keeper
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.purgatory.timer import Timer
from barnabas.purgatory.timing_wheel import TimerTask
from barnabas.replication.leader.isr_changes import IsrKeeper
from barnabas.replication.partition.leadership import PendingIsr
from barnabas.security.credentials.delegation_token import TokenTimes, created
from barnabas.security.identity.principal import KafkaPrincipal
from barnabas.security.sasl.bearer_tokens import PublicKeys, TokenRules
from barnabas.security.tls.listeners import TlsListeners
from barnabas.storage import log_maintenance
from barnabas.storage.cleaner import log_cleaner
from barnabas.storage.cleaner.cleanable import log_to_clean
from barnabas.storage.directory.directory_checkpoints import DirectoryCheckpoints
from barnabas.storage.log.log import Log

PERIODIC = {
    "coordinator/group/offsets/deleted_topics.py",
    "coordinator/runtime/timers.py",
    "coordinator/transaction/shard.py",
    "network/server.py",
    "node/broker.py",
    "node/coordinators.py",
    "node/inspection.py",
    "node/process_metrics.py",
    "node/security/tls_listeners.py",
    "node/security/sasl_listeners.py",
    "replication/replica_manager.py",
    "storage/cleaner/log_cleaner.py",
    "storage/log_maintenance.py",
}


class Broken(Exception):
    """An error of no known kind."""


def first_time(act: Callable[..., Any], seen: list[Any]) -> Callable[..., Any]:
    """Fails the first time, and acts after that; `seen` has what it was called with."""

    def acting(*arguments: Any, **options: Any) -> Any:
        seen.append(arguments[0])
        if len(seen) == 1:
            raise Broken
        return act(*arguments, **options)

    return acting


async def test_a_leader_whose_end_offsets_cannot_be_read_does_not_hide_the_others() -> None:
    metadata = MetadataCache("cluster")
    partitions = tuple(PartitionMetadata(number, (number,), leader=number + 1) for number in range(2))
    metadata._topics["orders"] = TopicMetadata("orders", Uuid(bytes(15) + b"\1"), partitions)
    asked: list[int] = []

    async def send(broker_id: int, *_: object) -> ListOffsetsResponse:
        asked.append(broker_id)
        if broker_id == 1:
            raise Broken
        row = ListOffsetsPartitionResponse(partition_index=1, offset=7)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[row])])

    tasks = Tasks()
    ends = RemoteEndOffsets(metadata, cast("Any", SimpleNamespace(send=send)), ManualClock(), tasks.start)
    for _ in range(2):
        ends.refresh([TopicPartition("orders", 0), TopicPartition("orders", 1)])
        await tasks.finished()
    assert ends.end_offset(TopicPartition("orders", 1)) == 7
    assert asked == [1, 2, 1, 2]


def test_every_caller_of_a_periodic_task_is_listed_here() -> None:
    root = Path(barnabas.__file__).parent
    asking = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if "every(" in (source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Attribute) and node.func.attr == "every")
            or (isinstance(node.func, ast.Name) and node.func.id == "every")
        )
    }
    assert asking == PERIODIC


# --- schedulers ---


async def test_a_run_that_fails_is_followed_by_the_next() -> None:
    scheduler, runs = LoopScheduler(asyncio.get_running_loop()), list[int]()
    thrice = asyncio.Event()

    def task() -> None:
        runs.append(1)
        if len(runs) == 3:
            thrice.set()
        raise Broken

    scheduler.every(1, task)
    await asyncio.wait_for(thrice.wait(), 30)
    scheduler.close()


def test_a_shards_timer_that_fails_runs_again() -> None:
    clock, runs = ManualClock(), list[float]()
    timer = Timer(clock)

    def run(operation: Callable[[], object], failed: Callable[[], None]) -> None:
        operation()  # as if the runtime caught nothing

    def operation() -> Any:
        runs.append(clock.monotonic_ms() - begun_ms)
        raise Broken

    begun_ms = clock.monotonic_ms()
    timers = ShardTimers(timer, run, 0)
    timers.every("key", 100, operation, delay_ms=10)
    for _ in range(300):
        clock.advance(1)
        timer.advance()
    assert runs == [10, 110, 210]
    timers.close()


class _Task(TimerTask):
    __slots__ = ("act",)

    def __init__(self, delay_ms: float, act: Callable[[], None]) -> None:
        super().__init__(delay_ms)
        self.act = act

    def run(self) -> None:
        self.act()


async def test_the_timer_is_driven_on_when_a_task_or_the_timer_itself_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SystemClock()
    timer = Timer(clock)
    driver = TimerDriver(asyncio.get_running_loop(), clock, timer)
    collect = Timer._collect_due
    monkeypatch.setattr(Timer, "_collect_due", first_time(collect, []))
    ran = asyncio.Event()

    def fail() -> None:
        raise Broken

    timer.add(_Task(1, fail))
    timer.add(_Task(1, ran.set))
    await asyncio.wait_for(ran.wait(), 30)
    driver.close()


# --- logs ---


TASKS = {
    "apply_retention": (log_maintenance, "delete_old_segments"),
    "remove_expired_producers": (log_maintenance, "remove_expired_producers"),
    "checkpoint_recovery_points": (Log, "write_epochs_soon"),
}


@pytest.mark.parametrize("task", TASKS)
def test_a_log_that_fails_keeps_no_other_from_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    manager = Broker(str(tmp_path)).start()
    for number in range(3):
        produce(manager.get_or_create(partition(number)))
    owner, name = TASKS[task]
    for log in manager.logs():
        monkeypatch.setattr(type(log.leader_epochs), "is_dirty", True, raising=False)
    seen: list[Log] = []
    monkeypatch.setattr(owner, name, first_time(getattr(owner, name), seen))
    getattr(manager.maintenance, task)()
    assert {each.topic_partition.partition for each in seen} == {0, 1, 2}
    manager.abandon()


def test_a_flush_that_fails_keeps_no_other_from_its_turn(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path), flush_ms=0)
    manager = broker.start()
    for number in range(3):
        produce(manager.get_or_create(partition(number)))
    seen: list[Log] = []
    manager.maintenance._group_commit = cast("Any", SimpleNamespace(request=first_time(lambda _: None, seen)))
    manager.maintenance.flush_dirty_logs()
    assert len(seen) == 3
    manager.abandon()


@pytest.mark.parametrize(
    "task", ["checkpoint_recovery_points", "checkpoint_log_start_offsets", "checkpoint_high_watermarks"]
)
def test_a_directory_that_fails_keeps_no_other_from_its_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    manager = Broker(str(tmp_path / "a"), str(tmp_path / "b")).start()
    planned: list[Any] = []
    written: list[Any] = []
    monkeypatch.setattr(
        DirectoryCheckpoints,
        "_plan",
        first_time(lambda _, directory, name: (directory.path, name), planned),
    )
    monkeypatch.setattr(DirectoryCheckpoints, "_submit", lambda _, directory, write: written.append(write))
    getattr(manager.maintenance, task)()
    assert len(planned) == 2
    assert [Path(path).name for path, _ in written] == ["b"]
    manager.abandon()


def test_every_task_of_the_maintenance_of_logs_is_among_these(tmp_path: Path) -> None:
    asked: list[str] = []
    maintenance = Broker(str(tmp_path)).start().maintenance
    scheduler = SimpleNamespace(every=lambda _, task, delay_ms=0: asked.append(task.__name__))
    maintenance._environment = cast("Any", SimpleNamespace(scheduler=scheduler))
    maintenance.start()
    assert set(asked) == {
        *TASKS,
        "flush_dirty_logs",
        "checkpoint_log_start_offsets",
        "checkpoint_high_watermarks",
    }


def test_a_log_that_cannot_be_judged_keeps_no_other_from_being_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = Broker(str(tmp_path)).start()
    for number in range(3):
        log = manager.get_or_create(partition(number))
        produce(log)
        log.roll()
    monkeypatch.setattr(LogConfig, "is_compacted", True)
    seen: list[Log] = []
    monkeypatch.setattr(log_cleaner, "log_to_clean", first_time(log_to_clean, seen))
    manager.cleaner._filthiest()
    assert len(seen) == 3
    assert manager.cleaner._uncleanable == {seen[0]}, "and it is not looked at again in every pass"
    manager.abandon()


# --- connections, replicas, coordinators ---


def test_a_connection_that_fails_keeps_no_other_from_its_deadline() -> None:
    closed: list[int] = []

    class Some(Server):
        def __init__(self) -> None:
            self.clock = ManualClock()
            self._handshakes = Handshakes(self)
            self._connections = {}
            self.limits = ConnectionLimits()

        def __iter__(self) -> Any:
            return (
                SimpleNamespace(
                    connection_id=number,
                    overdue=first_time(lambda _: "idle", overdue) if not number else lambda _: "idle",
                    close=lambda _, number=number: closed.append(number),
                )
                for number in range(3)
            )

    overdue: list[Any] = []
    Some().sweep()
    assert closed == [1, 2]


def test_a_listener_that_fails_keeps_no_other_from_its_certificates() -> None:
    looked_at: list[Any] = []
    renewing = SimpleNamespace(
        by_name={name: SimpleNamespace(renew=first_time(lambda _: False, looked_at)) for name in "ab"},
        warn_of_expiry=lambda: looked_at.append("expiry"),
    )
    looked_at.clear()
    TlsListeners.renew(renewing, {})  # type: ignore[arg-type]
    assert looked_at == [{}, {}, "expiry"]


class _Partition:
    def __init__(self, number: int, shrink: Callable[[], PendingIsr]) -> None:
        self.topic_partition = TopicPartition("topic", number)
        self.leadership = SimpleNamespace(isr=frozenset({1, 2}))
        self.maybe_shrink_isr = shrink


def test_a_partition_that_fails_keeps_no_other_from_its_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> PendingIsr:
        raise Broken

    changed: list[int] = []
    monkeypatch.setattr(
        IsrKeeper, "write", lambda _, partition, isr: changed.append(partition.topic_partition.partition)
    )
    keeper = IsrKeeper(cast("Any", object()), cast("Any", None), cast("Any", None), Metrics())
    shrunken = PendingIsr(frozenset({BrokerId(1)}), 0, 0)
    keeper.shrink_all(cast("Any", [_Partition(0, fail), *(_Partition(n, lambda: shrunken) for n in (1, 2))]))
    assert changed == [1, 2]


async def test_a_note_that_the_controller_did_not_get_is_left_again() -> None:
    made: list[str] = []

    class Znodes:
        async def create(self, path: str, data: bytes, **_: object) -> str:
            made.append(path)
            if len(made) == 1:
                raise Broken
            return path

    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    tasks = Tasks()
    store = ZnodeIsrStore(cast("Coordination", Znodes()), clock, scheduler, tasks.start)
    store._changed.add(A)
    store.start()
    for _ in range(60):
        clock.advance(CHECK_INTERVAL_MS)
        scheduler.run_due()
        await tasks.finished()
    assert len(made) == 2
    await store.close()


def test_a_transaction_that_cannot_be_ended_keeps_no_other_from_its_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    t = Transactions()
    for name in ("first", "second", "third"):
        t.add(t.init(name, timeout_ms=1_000), A, B, transactional_id=name)
    time_out = TransactionShard._time_out

    def failing(self: TransactionShard, transactional_id: str) -> Any:
        if transactional_id == "first":
            raise Broken
        return time_out(self, transactional_id)

    monkeypatch.setattr(TransactionShard, "_time_out", failing)
    t.advance(20_000)
    assert [t.state(name) for name in ("first", "second", "third")] == [
        "Ongoing",
        "CompleteAbort",
        "CompleteAbort",
    ]
    monkeypatch.undo()
    t.advance(20_000)
    assert t.state("first") == "CompleteAbort"


@pytest.mark.parametrize("name", ["abort_timed_out", "remove_expired"])
def test_a_sweep_of_transactions_that_fails_is_followed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen: list[Any] = []
    sweep = first_time(getattr(TransactionShard, name), seen)
    sweep.__name__ = name
    monkeypatch.setattr(TransactionShard, name, sweep)
    t = Transactions(abort_timed_out_interval_ms=1_000, remove_expired_interval_ms=1_000)
    t.advance(3_500)
    assert len(seen) == 3


def test_a_group_that_fails_keeps_no_other_from_its_expiry(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=10_000)
    for group in ("first", "second", "third"):
        groups.commit(1, group=group)
    expire, broken = OffsetRemoval._expire_group, True

    def failing(self: Any, group: Any, records: Any) -> bool:
        found = expire(self, group, records)
        if broken and group.group_id == "first":
            raise Broken
        return found

    monkeypatch.setattr(OffsetRemoval, "_expire_group", failing)
    groups.advance(15_000)
    assert set(groups.shard.groups) == {"first"}
    assert set(Groups(log=groups.log).shard.offsets.committed) == {"first"}, "nothing of it was removed"
    broken = False
    groups.advance(15_000)
    assert not groups.shard.groups


def test_lost_topics_are_looked_for_again_when_looking_failed() -> None:
    groups = Groups(offsets_retention_check_interval_ms=5_000, stored={"t": None})
    groups.commit(1)
    topics, seen = groups.shard.offsets.topic_names, list[Any]()
    cast("Any", groups.shard._lost_topics)._offsets = SimpleNamespace(
        groups=groups.shard.offsets.groups, topic_names=first_time(topics, seen)
    )
    groups.advance(4_000)
    assert (len(seen), groups.asked) == (1, [])
    groups.advance(5_000)
    assert not groups.shard.groups


# --- parts with the lifetime of the broker ---


async def test_an_answer_that_cannot_be_taken_leaves_the_controllers_channel_working() -> None:
    class Channel:
        async def send(self, request: Any, _: object) -> Any:
            return request

        def close(self) -> None: ...

    async def connect(_: object) -> Any:
        return Channel()

    answers: list[Any] = []
    senders = ControllerChannels(connect, SystemClock(), ManualScheduler(ManualClock()))
    channels = BrokerChannels(senders.start_sender, SystemClock(), Metrics())
    channels.add([cast("Any", SimpleNamespace(id=2))])
    answered = first_time(lambda _: None, answers)
    for number in range(3):
        last = channels.send(2, cast("Any", number), cast("Any", int), answered)
    await asyncio.wait_for(all_over([last]), 30)
    assert answers == [0, 1, 2]
    await senders.close()


async def test_a_process_that_cannot_be_looked_after_is_started_again() -> None:
    launches = itertools.count()
    again = asyncio.Event()

    class Child:
        is_running = False

        def send(self, _: int) -> None: ...

        async def wait(self) -> int:
            return 0

        async def stop(self, _: float) -> None: ...

        def epitaph(self) -> str:
            return "it ended"

    class Member:
        name = "broker 1"
        restart_backoff = Backoff(1.0, 1.0)

        async def launch(self, _: object) -> Any:
            number = next(launches)
            if number == 1:
                raise Broken
            if number == 2:
                again.set()
            return Child()

        async def until_ready(self, _: object) -> None: ...

        def ended(self) -> None: ...

    keeper = Keeper(cast("Any", Member()), lambda *_: None, SystemClock())
    keeper.start()
    await asyncio.wait_for(again.wait(), 30)
    await keeper.stop()


def test_a_listener_that_fails_keeps_no_other_from_hearing_of_metadata() -> None:
    metadata, heard = MetadataCache("cluster"), list[str]()

    def fail(*_: object) -> None:
        raise Broken

    metadata.put_topic("topic", Uuid(bytes(15) + b"\x01"), [PartitionMetadata(0, (1,))])
    metadata.on_topic_removed += [fail, lambda name, _: heard.append(name)]
    metadata.when_changed(fail)
    metadata.when_changed(lambda: heard.append("changed"))
    assert metadata.remove_topic("topic") is not None
    assert heard == ["changed", "topic"]


def test_a_figure_that_cannot_be_read_leaves_the_others() -> None:
    metrics = Metrics()

    def fail() -> float:
        raise Broken

    metrics.gauge("broken", "-", fail)
    metrics.gauge("whole", "-", lambda: 7)
    assert "whole 7" in render_prometheus(metrics).splitlines()


# --- authentication ---


async def test_a_token_that_cannot_be_removed_keeps_none_of_the_others(tmp_path: Path) -> None:
    clock, removed = ManualClock(), list[str]()
    async with open_embedded(tmp_path, clock, InlineBackground()) as znodes:
        tokens = DelegationTokens(
            znodes, clock, "secret", TokenTimes(1_000, 100), InlineBackground(), Metrics()
        )
        await tokens.open(lambda: None)
        alice = KafkaPrincipal.user("alice")
        for name in ("a", "b", "c"):
            await tokens.add(created(name, alice, alice, (), 0, clock.now_ms(), tokens.times))
    clock.advance(ms=101)

    async def write(token_id: str, operation: Any) -> None:
        removed.append(token_id)
        if token_id == "a":
            raise Broken

    tokens._write = write  # type: ignore[method-assign]
    await tokens.remove_expired()
    assert removed == ["a", "b", "c"]
    assert [token.token_id for token in tokens] == ["a"]


class CopyThatFails:
    """The second time it is read."""

    def __init__(self) -> None:
        self.reads: list[bool] = []
        self.look: Callable[[], None] = lambda: None
        self.is_read_again = asyncio.Event()

    async def open(self, look: Callable[[], None]) -> None:
        self.look = look

    async def refresh(self, look: Callable[[], None], *, everything: bool) -> None:
        self.reads.append(everything)
        if len(self.reads) == 1:
            look()
            raise Broken
        self.is_read_again.set()


async def test_what_could_not_be_read_of_the_store_is_read_again_as_a_whole() -> None:
    copy, znodes = CopyThatFails(), SimpleNamespace(session_id=1, add_listener=lambda _: None)
    async with asyncio.timeout(20), following(cast("Coordination", znodes), copy, "something"):
        copy.look()
        await copy.is_read_again.wait()
    assert copy.reads == [False, True]


async def test_everything_is_read_again_in_a_new_session() -> None:
    listeners = list[Callable[[SessionState], None]]()
    copy, znodes = CopyThatFails(), SimpleNamespace(session_id=1, add_listener=listeners.append)
    copy.reads.append(True)
    async with asyncio.timeout(20), following(cast("Coordination", znodes), copy, "something"):
        listeners[0](SessionState.CONNECTED)
        await asyncio.sleep(0)
        znodes.session_id = 2
        listeners[0](SessionState.CONNECTED)
        await copy.is_read_again.wait()
    assert copy.reads == [True, True]


async def test_everything_is_read_again_though_no_watch_has_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that was lost tells nothing: rules that were taken back would be believed for ever."""
    monkeypatch.setattr(store_watcher, "LOOK_AGAIN_S", 0.01)
    copy, znodes = CopyThatFails(), SimpleNamespace(session_id=1, add_listener=lambda _: None)
    copy.reads.append(False)
    async with asyncio.timeout(20), following(cast("Coordination", znodes), copy, "something"):
        await copy.is_read_again.wait()
    assert copy.reads[:2] == [False, True]


async def test_keys_that_cannot_be_read_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, work = list[str](), list[Any]()

    def read(url: str) -> PublicKeys:
        reads.append(url)
        raise Broken

    monkeypatch.setattr(jwks, "read_key_set", read)
    verifier = TokenVerifier("file:///keys", TokenRules(), ManualClock(), work.append)
    for _ in range(2):
        verifier.refresh()
        verifier.refresh()
        await work.pop()
        assert work == []
    assert len(reads) == 2
