"""Start and stop of a broker: in order, once, and as the same broker as before."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barnabas.node.broker as wiring
from barnabas.administration.config_notifications import ConfigNotifications
from barnabas.administration.disk_import import DiskImport
from barnabas.client.aio.channel import Channel
from barnabas.cluster.embedded.session import EmbeddedSession, EmbeddedStore, open_embedded
from barnabas.cluster.stores.registration import Registration
from barnabas.cluster.znodes.layout import ClusterIdZnode
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.controller.controller import KafkaController
from barnabas.controller.term import Term
from barnabas.coordinator.runtime.runtime import CoordinatorRuntime
from barnabas.core.clock import SystemClock
from barnabas.core.errors import NotCoordinator
from barnabas.core.files import RealFiles
from barnabas.core.reporting.metrics import render_prometheus
from barnabas.core.scheduler import InlineBackground
from barnabas.network.server import Server
from barnabas.node import coordinators
from barnabas.node.broker import Broker
from barnabas.node.lifecycle import BrokerState
from barnabas.node.membership import identity
from barnabas.node.membership.cluster_member import ClusterMember
from barnabas.node.membership.coordination_store import COORDINATION_DIRECTORY
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.replication.leader.delayed_requests import DelayedRequests
from barnabas.requests.dispatcher import Dispatcher
from barnabas.storage.directory.directory_properties import read_clean_shutdown
from barnabas.storage.log_manager import LogManager
from tests.support.embedded_cluster import cluster_broker, shared_store
from tests.support.embedded_sessions import expire_session, renew_session
from tests.support.in_process import (
    BY_NAME_FETCH,
    InProcessBroker,
    fetch_request,
    in_process_broker,
    state_of,
)

REPOSITORY = Path(__file__).resolve().parents[3]


def state_in_metrics(broker: Broker) -> str:
    rendered = render_prometheus(broker.metrics)
    return next(line for line in rendered.splitlines() if line.startswith("kafka_broker_state "))


def noting(monkeypatch: pytest.MonkeyPatch, order: list[str], owner: object, name: str, step: str) -> None:
    """Write `step` down whenever `owner.name` is called, and call it."""
    original: Callable[..., Any] = getattr(owner, name)

    def noted(*arguments: Any, **keywords: Any) -> Any:
        order.append(step)
        return original(*arguments, **keywords)

    monkeypatch.setattr(owner, name, noted)


async def test_parts_start_in_order_and_stop_in_reverse(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    order: list[str] = []
    up = [
        (wiring, "open_coordination", "coordination store"),
        (identity, "get_or_create_cluster_id", "cluster id"),
        (identity, "generate_broker_id", "broker id"),
        (ConfigRepository, "load", "dynamic settings"),
        (LogManager, "open", "logs"),
        (Server, "bind", "sockets bound"),
        (wiring, "ReplicaManager", "replicas"),
        (Registration, "register", "registration"),
        (coordinators, "make_group_coordinator", "group coordinator"),
        (coordinators, "make_transaction_coordinator", "transaction coordinator"),
        (wiring, "Dispatcher", "handlers"),
        (DiskImport, "run", "what only the disk knows"),
        (ConfigNotifications, "start", "changes of settings"),
        (KafkaController, "start", "controller"),
        (Term, "take_over", "topics"),
        (Server, "start", "sockets served"),
    ]
    down = [
        (ClusterMember, "shut_down_controlled", "leaderships handed over"),
        (KafkaController, "close", "controller closed"),
        (ConfigNotifications, "close", "changes of settings unheard"),
        (Server, "stop", "sockets closed"),
        (CoordinatorRuntime, "answer_waiting", "group requests answered"),
        (DelayedRequests, "answer_waiting", "produces and fetches answered"),
        (Dispatcher, "close", "handlers stopped"),
        (CoordinatorRuntime, "close", "a coordinator stopped"),
        (LogManager, "close", "logs closed"),
        (Registration, "unregister", "no longer registered"),
        (EmbeddedStore, "close", "coordination store closed"),
    ]
    for owner, name, step in [*up, *down]:
        noting(monkeypatch, order, owner, name, step)
    down.insert(8, down[7])  # there are two coordinators
    each = InProcessBroker([tmp_path])
    await each.start()
    assert order == [step for _, _, step in up]
    assert each.broker.lifecycle.state is BrokerState.RUNNING
    order.clear()
    await each.stop()
    assert order == [step for _, _, step in down]
    assert state_of(each.broker) is BrokerState.NOT_RUNNING
    await each.broker.shutdown()
    assert order == [step for _, _, step in down], "shutdown runs once"


async def test_parts_of_a_member_of_a_cluster_start_in_order_and_stop_in_reverse(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The controller notifies its own broker by a call, before any client can ask, and stops first."""
    order: list[str] = []
    up = [
        (wiring, "open_coordination", "coordination store"),
        (identity, "get_or_create_cluster_id", "cluster id"),
        (ConfigRepository, "load", "dynamic settings"),
        (LogManager, "open", "logs"),
        (Server, "bind", "sockets bound"),
        (wiring, "ReplicaManager", "replicas"),
        (Registration, "register", "registration"),
        (coordinators, "make_group_coordinator", "group coordinator"),
        (coordinators, "make_transaction_coordinator", "transaction coordinator"),
        (wiring, "Dispatcher", "handlers"),
        (ConfigNotifications, "start", "changes of settings"),
        (KafkaController, "start", "controller"),
        (Term, "take_over", "topics"),
        (Server, "start", "sockets served"),
    ]
    down = [
        (ClusterMember, "shut_down_controlled", "leaderships handed over"),
        (KafkaController, "close", "controller closed"),
        (ConfigNotifications, "close", "changes of settings unheard"),
        (Server, "stop", "sockets closed"),
        (Dispatcher, "close", "handlers stopped"),
        (CoordinatorRuntime, "close", "a coordinator stopped"),
        (LogManager, "close", "logs closed"),
        (Registration, "unregister", "no longer registered"),
        (EmbeddedSession, "close", "session closed"),
    ]
    async with shared_store(tmp_path, monkeypatch):
        for owner, name, step in [*up, *down]:
            noting(monkeypatch, order, owner, name, step)
        down.insert(6, down[5])  # there are two coordinators
        each = cluster_broker(tmp_path / "1", 1)
        await each.start()
        assert order == [step for _, _, step in up]
        assert await each.create_topic("topic") == 0
        order.clear()
        await each.stop()
        assert order == [step for _, _, step in down]


def joining(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="group",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


async def test_who_waits_when_the_broker_stops_is_answered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first member waits for others, the fetch for records; neither will come."""
    monkeypatch.setattr(wiring, "DRAIN_MS_MAX", 1_000.0)  # at its end whoever waits is cut off
    each = InProcessBroker(
        [tmp_path],
        group_initial_rebalance_delay_ms=60_000,
        offsets_topic_num_partitions=1,
        offsets_topic_replication_factor=1,
    )
    await each.start()
    assert await each.create_topic("topic") == 0
    reader, member = await Channel.connect(each.address), await Channel.connect(each.address)
    fetching = asyncio.create_task(
        reader.send(fetch_request("topic", 0, max_wait_ms=60_000), FetchResponse, version_max=BY_NAME_FETCH)
    )
    await until_coordinated(each)
    join = asyncio.create_task(member.send(joining(), JoinGroupResponse, version_max=3))
    await until_both_wait(each)
    await each.stop()
    assert (await join).error_code == NotCoordinator.code
    assert (await fetching).responses[0].partitions[0].error_code == 0
    reader.close()
    member.close()


async def until_coordinated(each: InProcessBroker) -> None:
    request = FindCoordinatorRequest(key="group", key_type=0)
    async with asyncio.timeout(60):
        while (await each.ask(request, FindCoordinatorResponse, 3)).error_code:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
        listing = DescribeGroupsRequest(groups=["group"])
        while (await each.ask(listing, DescribeGroupsResponse, 5)).groups[0].error_code:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def until_both_wait(each: InProcessBroker) -> None:
    pending = 'barnabas_purgatory_pending{purgatory="Fetch"} 1'
    async with asyncio.timeout(60):
        while (  # noqa: ASYNC110 - the other side of a socket has no event
            pending not in render_prometheus(each.broker.metrics) or not await is_preparing(each)
        ):
            await asyncio.sleep(0.01)


async def is_preparing(each: InProcessBroker) -> bool:
    answer = await each.ask(DescribeGroupsRequest(groups=["group"]), DescribeGroupsResponse)
    return answer.groups[0].group_state == "PreparingRebalance"


async def test_starting_again_does_nothing_and_starting_while_stopping_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    each = InProcessBroker([tmp_path])
    starting = asyncio.ensure_future(each.broker.startup())
    await asyncio.sleep(0)
    assert each.broker.lifecycle.state is BrokerState.STARTING
    assert state_in_metrics(each.broker) == "kafka_broker_state 1"
    await each.broker.startup()
    assert each.broker.lifecycle.state is BrokerState.STARTING, "the second call did not wait for the first"
    await starting
    assert state_in_metrics(each.broker) == "kafka_broker_state 3"
    (listener,) = each.broker.bound_listeners
    await each.broker.startup()
    assert each.broker.bound_listeners == [listener]

    handing_over: list[str] = []
    hand_over = ClusterMember.shut_down_controlled

    async def look_and_hand_over(member: ClusterMember) -> None:
        handing_over.append(state_in_metrics(each.broker))
        await hand_over(member)

    monkeypatch.setattr(ClusterMember, "shut_down_controlled", look_and_hand_over)
    stopping = asyncio.ensure_future(each.broker.shutdown())
    await asyncio.sleep(0)
    assert handing_over == ["kafka_broker_state 6"]
    assert state_in_metrics(each.broker) == "kafka_broker_state 7"
    with pytest.raises(RuntimeError, match="shutting down"):
        await each.broker.startup()
    await each.broker.shutdown()
    await stopping
    assert state_in_metrics(each.broker) == "kafka_broker_state 0"


async def test_every_call_of_shutdown_returns_when_the_broker_has_stopped(tmp_path: Path) -> None:
    each = InProcessBroker([tmp_path])
    await each.start()
    first = asyncio.ensure_future(each.broker.shutdown())
    await asyncio.sleep(0)
    assert not first.done()
    await each.broker.shutdown()
    assert state_of(each.broker) is BrokerState.NOT_RUNNING
    async with in_process_broker(tmp_path):
        pass  # locks and store are free
    await first


async def test_a_clean_shutdown_notes_the_epoch_of_the_last_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared_store(tmp_path, monkeypatch) as store:
        each = cluster_broker(tmp_path / "1", broker_id=1)
        await each.start()
        member = each.broker._member
        assert member is not None
        before = member.registration.broker_epoch
        (session,) = store._sessions
        await expire_session(session)
        renew_session(session)
        async with asyncio.timeout(60):
            while member.registration.registered_epoch() is None:  # noqa: ASYNC110 - there is no event to await
                await asyncio.sleep(0.01)
        after = member.registration.broker_epoch
        await each.stop()
    assert before < after == read_clean_shutdown(RealFiles(), str(tmp_path / "1"))


async def test_a_stopped_broker_can_be_started_again_and_has_everything(tmp_path: Path) -> None:
    each = InProcessBroker([tmp_path])
    await each.start()
    assert await each.create_topic("topic") == 0
    assert (await each.produce("topic", b"kept")).error_code == 0
    await each.stop()
    await each.start()
    assert await each.read_all("topic") == [b"kept"]
    await each.stop()


async def test_a_start_that_fails_gives_everything_back(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path / "first") as first:
        taken = f"PLAINTEXT://127.0.0.1:{first.address.port}"
        second = InProcessBroker([tmp_path / "second"], listeners=taken)
        with pytest.raises(OSError, match="cannot listen"):
            await second.broker.startup()
        await second.broker.shutdown()
        assert second.broker.lifecycle.state is BrokerState.NOT_RUNNING
    async with in_process_broker(tmp_path / "second") as third:
        assert await third.create_topic("topic") == 0, "locks and store are free again"


async def test_a_broker_id_is_generated_once_and_remembered(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as each:
        assert each.broker.broker_id == 1001, "reserved.broker.max.id + 1"
        cluster_id = each.broker.cluster_id
    remembered = (tmp_path / "meta.properties").read_text()
    assert "broker.id=1001" in remembered
    assert f"cluster.id={cluster_id}" in remembered
    async with in_process_broker(tmp_path, reserved_broker_max_id=5000) as each:
        assert each.broker.broker_id == 1001
        assert each.broker.cluster_id == cluster_id


async def test_the_reserved_ids_are_left_to_people(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, reserved_broker_max_id=50) as each:
        assert each.broker.broker_id == 51
    async with in_process_broker(tmp_path / "other", broker_id=7) as each:
        assert each.broker.broker_id == 7


async def test_every_log_directory_remembers_its_broker(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b" / "deeper"]
    async with in_process_broker(*directories) as each:
        broker_id = each.broker.broker_id
    for directory in directories:
        assert f"broker.id={broker_id}" in (directory / "meta.properties").read_text()


def start(*arguments: str, code: int = 1) -> str:
    """`barnabas start` must fail; what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "start", "--listener", "PLAINTEXT://127.0.0.1:0", *arguments],
        capture_output=True, text=True, cwd=REPOSITORY / "src", check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert done.stdout == "", "no ready line"
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


async def test_data_of_another_broker_or_cluster_is_refused_in_words(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, broker_id=3):
        pass
    said = await asyncio.to_thread(start, "--data-dir", str(tmp_path), "--broker-id", "4", code=2)
    assert "broker.id is 4, but the log directories were written by broker 3" in said
    remembered = tmp_path / "meta.properties"
    lines = remembered.read_text().splitlines()
    remembered.write_text("\n".join("cluster.id=other" if "cluster.id" in line else line for line in lines))
    said = await asyncio.to_thread(start, "--data-dir", str(tmp_path))
    assert "written in cluster other" in said


def copy_to_the_other(log: str, one: Path, two: Path) -> None:
    source, target = (one, two) if (one / log).exists() else (two, one)
    shutil.copytree(source / log, target / log)


async def test_a_cluster_that_cannot_be_told_is_not_joined_and_that_is_said_in_words(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path):
        pass
    background = InlineBackground()
    async with open_embedded(tmp_path / COORDINATION_DIRECTORY, SystemClock(), background) as znodes:
        await znodes.set(ClusterIdZnode.PATH, b'{"version":"1"')
    said = await asyncio.to_thread(start, "--data-dir", str(tmp_path))
    assert "the cluster id cannot be read" in said


async def test_a_partition_in_two_directories_is_refused_in_words(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with in_process_broker(one, two) as each:
        assert await each.create_topic("topic") == 0
    copy_to_the_other("topic-0", one, two)
    said = await asyncio.to_thread(start, "--set", f"log.dirs={one},{two}")
    assert "topic-0 is in" in said
