"""The test kit over HTTP, for tests in other languages: `barnabas start --control 127.0.0.1:8500`.

    curl -X POST 127.0.0.1:8500/faults -d '{"api": "Produce", "drop": "after", "times": 1}'

`ROUTES` is the interface; `/openapi.json` is rendered from it. Bodies and responses are JSON. The interface
breaks brokers on purpose, so it is served on loopback only.

The handles of the kit block, as a test in Python expects. Here each call has a thread of its own, so a wait
for a fault does not hold up the request that ends it. Calls that change the lives, cuts or time of brokers
run one after the other.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import itertools
import json
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError
from barnabas.network.http.messages import HttpResponse, RequestRefused, refusal
from barnabas.network.http.server import HttpRequest
from barnabas.testing.asking.inspection import StoredRecord
from barnabas.testing.broker import RunningBroker
from barnabas.testing.cluster import RunningCluster
from barnabas.testing.faults.rules import HIT_TIMEOUT_S, FaultRule, Faults
from barnabas.testing.http.interface import Asked, Route, openapi, route_of

T = TypeVar("T")

JSON: Final = (b"content-type", b"application/json")
CALLS_MAX: Final = 64
"""Calls at a time; further ones wait."""
TIMEOUT_S_MAX: Final = 3_600.0
_IN_PYTHON_ALONE: Final = ("answer", "change", "when")
"""Arguments of a rule that are functions."""
FAULT_ARGUMENTS: Final = tuple(
    name for name in inspect.signature(Faults.add).parameters if name not in ("self", *_IN_PYTHON_ALONE)
)
_STATUSES: Final = (
    (TimeoutError, HTTPStatus.REQUEST_TIMEOUT),
    ((RuntimeError, ClusterUnreachable), HTTPStatus.CONFLICT),
    ((KafkaError, TypeError, ValueError, OverflowError, OSError), HTTPStatus.BAD_REQUEST),
)
_REFUSALS: Final = (
    KafkaError,
    ClusterUnreachable,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    OverflowError,
)


class _AddedRule(NamedTuple):
    rule: FaultRule
    faults: Faults
    broker: int | None
    """The broker of the rule; None for all."""

    def shown(self, number: int) -> dict[str, Any]:
        counted = {"matches": self.rule.matches, "hits": self.rule.hits}
        return {"number": number, "broker": self.broker, "rule": str(self.rule), **counted}


class ControlEndpoint:
    """Answers of the control interface of one broker, or of a cluster."""

    def __init__(self, tested: RunningBroker | RunningCluster) -> None:
        self._tested = tested
        self._cluster = tested if isinstance(tested, RunningCluster) else None
        self._brokers: Sequence[RunningBroker] = (
            tested.brokers if isinstance(tested, RunningCluster) else (tested,)
        )
        self._rules: dict[int, _AddedRule] = {}
        """Rules by the number under which clients know them. No number is given twice."""
        self._numbers = itertools.count(1)
        self._snapshots: list[Path] = []
        self._slots = asyncio.Semaphore(CALLS_MAX)
        self._one_at_a_time = asyncio.Lock()

    async def answer(self, request: HttpRequest) -> HttpResponse:
        try:
            route, asked = route_of(ROUTES, request)
            found = await route.answer(self, asked)
        except RequestRefused as error:
            return refusal(error)
        except _REFUSALS as error:
            status = next(status for kinds, status in _STATUSES if isinstance(error, kinds))
            return refusal(RequestRefused(status, str(error) or type(error).__name__))
        if found is None:
            return HttpResponse(HTTPStatus.NO_CONTENT)
        return HttpResponse(HTTPStatus.OK, json.dumps(found).encode(), (JSON,))

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a method that blocks. Its thread is a daemon: the process ends without what it waits for."""
        outcome: Future[T] = Future()
        outcome.set_running_or_notify_cancel()

        def run() -> None:
            try:
                found = function(*arguments)
            except CancelledError:
                outcome.set_exception(RuntimeError("the broker ended before it answered"))
            except BaseException as error:  # noqa: BLE001 - raised in the call
                outcome.set_exception(error)
            else:
                outcome.set_result(found)

        async with self._slots:
            threading.Thread(target=run, name="barnabas-control", daemon=True).start()
            return await asyncio.wrap_future(outcome)

    async def _change(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a method that changes the lives, cuts or time of brokers."""
        async with self._one_at_a_time:
            return await self._call(function, *arguments)

    # --- brokers ---

    def _broker(self, text: object) -> RunningBroker:
        found = [each for each in self._brokers if str(each.broker_id) == str(text)]
        if not found:
            known = ", ".join(str(each.broker_id) for each in self._brokers)
            raise RequestRefused(HTTPStatus.NOT_FOUND, f"there is no broker {text}; there is {known}")
        return found[0]

    def _named(self, text: object | None) -> Sequence[RunningBroker]:
        """The broker of this id, or all."""
        return self._brokers if text is None else [self._broker(text)]

    def _of_cluster(self) -> RunningCluster:
        if self._cluster is None:
            raise ValueError("this is a single broker; start a cluster with --brokers N")
        return self._cluster

    async def list_brokers(self, _: Asked) -> Any:
        controller = await self._call(self._controller)
        return [
            {
                "id": each.broker_id,
                "listeners": each.listeners.split(","),
                "state": _state_of(each),
                "is_controller": each.broker_id == controller,
                "halt_reason": each.halt_reason,
            }
            for each in self._brokers
        ]

    def _controller(self) -> int:
        if self._cluster is not None:
            return self._cluster.controller()
        return self._brokers[0].broker_id

    async def kill(self, asked: Asked) -> None:
        await self._change(self._broker(asked.path["id"]).kill)

    async def stop(self, asked: Asked) -> None:
        await self._change(self._broker(asked.path["id"]).stop)

    async def restart(self, asked: Asked) -> None:
        await self._change(self._broker(asked.path["id"]).restart)

    async def pause(self, asked: Asked) -> None:
        await self._change(self._broker(asked.path["id"]).pause)

    async def resume(self, asked: Asked) -> None:
        await self._change(self._broker(asked.path["id"]).resume)

    async def expire_session(self, asked: Asked) -> None:
        broker_id = self._broker(asked.path["id"]).broker_id
        await self._change(self._of_cluster().expire_session, broker_id)

    async def list_cuts(self, _: Asked) -> Any:
        return [list(each) for each in self._of_cluster().cuts]

    async def cut(self, asked: Asked) -> Any:
        await self._change(self._of_cluster().cut, *_pair(asked.body.get("between")))
        return await self.list_cuts(asked)

    async def heal_cuts(self, asked: Asked) -> None:
        between = asked.body.get("between")
        await self._change(self._of_cluster().heal, *(() if between is None else _pair(between)))

    # --- fault rules ---

    async def list_faults(self, _: Asked) -> Any:
        self._rules = {
            number: added for number, added in self._rules.items() if added.rule in set(added.faults)
        }
        return [added.shown(number) for number, added in self._rules.items()]

    async def add_fault(self, asked: Asked) -> Any:
        arguments = dict(asked.body)
        broker_id = arguments.pop("broker", None)
        faults = self._tested.faults if broker_id is None else self._broker(broker_id).faults
        added = _AddedRule(faults.add(**arguments), faults, broker_id)
        number = next(self._numbers)
        self._rules[number] = added
        return added.shown(number)

    async def clear_faults(self, _: Asked) -> None:
        for each in {self._tested.faults, *(each.faults for each in self._brokers)}:
            each.clear()
        self._rules.clear()

    async def show_fault(self, asked: Asked) -> Any:
        number, added = self._rule(asked)
        return added.shown(number)

    async def remove_fault(self, asked: Asked) -> None:
        number, added = self._rule(asked)
        added.rule.remove()
        del self._rules[number]

    async def await_fault(self, asked: Asked) -> Any:
        number, added = self._rule(asked)
        await self._call(added.rule.wait_for_hits, int(asked.query.get("hits", 1)), _timeout_s(asked))
        return added.shown(number)

    def _rule(self, asked: Asked) -> tuple[int, _AddedRule]:
        number = int(asked.path["number"])
        added = self._rules.get(number)
        if added is None:
            raise RequestRefused(HTTPStatus.NOT_FOUND, f"there is no fault {number}")
        return number, added

    # --- disk, time and data ---

    async def set_disk(self, asked: Asked) -> None:
        state, under = str(asked.body.get("state", "")), str(asked.body.get("under", ""))
        for disk in [each.disk for each in self._named(asked.body.get("broker"))]:
            match state:
                case "healthy":
                    disk.heal()
                case "stalled":
                    disk.stall(under=under)
                case name if name.startswith("E"):
                    disk.fail(name, under=under)
                case other:
                    raise ValueError(f"state {other!r}: write healthy, stalled, or an error such as ENOSPC")

    async def advance_time(self, asked: Asked) -> Any:
        await self._change(self._tested.time.advance, asked.body.get("advance", ""))
        return {"now_ms": self._tested.time.now_ms()}

    async def take_snapshot(self, _: Asked) -> Any:
        self._snapshots.append(await self._change(self._tested.snapshot))
        return {"snapshot": len(self._snapshots)}

    async def restore(self, asked: Asked) -> None:
        number = int(asked.path["number"])
        if not 1 <= number <= len(self._snapshots):
            raise RequestRefused(HTTPStatus.NOT_FOUND, f"there is no snapshot {number}")
        await self._change(self._tested.restore, self._snapshots[number - 1])

    # --- looking into the brokers ---

    async def list_requests(self, asked: Asked) -> Any:
        api, client_id = asked.query.get("api"), asked.query.get("client_id")
        return [
            {
                "broker": broker.broker_id,
                "api": each.api,
                "version": each.version,
                "client_id": each.client_id,
                "message": str(each.message),
            }
            for broker in self._named(asked.query.get("broker"))
            for each in await self._call(lambda broker=broker: broker.requests(api, client_id=client_id))
        ]

    async def show_log(self, asked: Asked) -> Any:
        brokers = self._named(asked.query.get("broker"))
        if len(brokers) > 1:
            raise ValueError("each broker has a log; name one, such as ?broker=1")
        return brokers[0].log_lines()

    async def create_topic(self, asked: Asked) -> Any:
        configs = {str(key): str(value) for key, value in dict(asked.body.get("configs", {})).items()}
        name, partitions = asked.path["topic"], int(asked.body.get("partitions", 1))
        replicas = int(asked.body.get("replication_factor", -1))
        await self._call(
            lambda: self._tested.create_topic(
                name, partitions=partitions, replication_factor=replicas, **configs
            )
        )
        return {"name": name, "partitions": partitions}

    async def list_records(self, asked: Asked) -> Any:
        topic, committed = asked.path["topic"], asked.query.get("committed", "false") == "true"
        found = await self._call(lambda: self._tested.records(topic, committed=committed))
        return [_shown_record(each) for each in found]

    async def show_partition(self, asked: Asked) -> Any:
        topic, partition = asked.path["topic"], int(asked.path["partition"])
        cluster = self._of_cluster()
        return {
            "leader": await self._call(cluster.leader, topic, partition),
            "in_sync": await self._call(cluster.in_sync, topic, partition),
        }

    async def move_leader(self, asked: Asked) -> Any:
        topic, partition = asked.path["topic"], int(asked.path["partition"])
        to, cluster = int(asked.body.get("to", -1)), self._of_cluster()
        await self._call(lambda: cluster.move_leader(topic, partition, to=to))
        return await self.show_partition(asked)

    async def await_partition(self, asked: Asked) -> Any:
        topic, partition = asked.path["topic"], int(asked.path["partition"])
        is_not, timeout_s, cluster = asked.query.get("leader_is_not"), _timeout_s(asked), self._of_cluster()
        other = None if is_not is None else int(is_not)
        await self._call(lambda: cluster.wait_for_leader(topic, partition, is_not=other, timeout_s=timeout_s))
        if asked.query.get("in_sync", "false") == "true":
            await self._call(lambda: cluster.wait_in_sync(topic, partition, timeout_s=timeout_s))
        return await self.show_partition(asked)

    async def list_offsets(self, asked: Asked) -> Any:
        found = await self._call(self._tested.committed, asked.path["group"])
        return [
            {"topic": place.topic, "partition": place.partition, "offset": offset}
            for place, offset in sorted(found.items())
        ]

    async def await_group(self, asked: Asked) -> Any:
        members = asked.query.get("members")
        found = await self._call(
            lambda: self._tested.wait_for(
                group=asked.path["group"],
                state=asked.query.get("state"),
                members=None if members is None else int(members),
                timeout_s=_timeout_s(asked),
            )
        )
        return {
            "group": found.group_id,
            "state": found.state,
            "members": [each.member_id for each in found.members],
        }

    async def rebalance(self, asked: Asked) -> None:
        await self._call(self._tested.rebalance, asked.path["group"])

    async def fence_members(self, asked: Asked) -> Any:
        return {"removed": await self._call(self._tested.fence_members, asked.path["group"])}

    async def fence_producer(self, asked: Asked) -> None:
        await self._call(self._tested.fence_producer, asked.path["id"])

    async def show_interface(self, _: Asked) -> Any:
        return openapi(ROUTES)


_Endpoint = ControlEndpoint
_PARTITION: Final = "/topics/{topic}/partitions/{partition}"
ROUTES: Final = (
    Route("GET", "/openapi.json", _Endpoint.show_interface, "This interface."),
    Route("GET", "/brokers", _Endpoint.list_brokers, "Brokers: id, listeners, state, controller or not."),
    Route("POST", "/brokers/{id}/kill", _Endpoint.kill, "End a broker as kill -9 does."),
    Route("POST", "/brokers/{id}/stop", _Endpoint.stop, "Shut a broker down."),
    Route("POST", "/brokers/{id}/restart", _Endpoint.restart, "Start a broker on its port and data."),
    Route("POST", "/brokers/{id}/pause", _Endpoint.pause, "Let a broker stand still."),
    Route("POST", "/brokers/{id}/resume", _Endpoint.resume, "Let a paused broker go on."),
    Route("POST", "/brokers/{id}/expire-session", _Endpoint.expire_session, "End its session (clusters)."),
    Route("GET", "/cuts", _Endpoint.list_cuts, "Pairs of brokers that are cut off from each other."),
    Route("POST", "/cuts", _Endpoint.cut, "Cut two brokers off from each other.", body=("between",)),
    Route("DELETE", "/cuts", _Endpoint.heal_cuts, "End all cuts, or one.", body=("between",)),
    Route("GET", "/faults", _Endpoint.list_faults, "Fault rules, in their order."),
    Route(
        "POST", "/faults", _Endpoint.add_fault, "Add a rule: the arguments of docs/TESTING.md.",
        body=("broker", *FAULT_ARGUMENTS),
    ),
    Route("DELETE", "/faults", _Endpoint.clear_faults, "Remove all rules."),
    Route("GET", "/faults/{number}", _Endpoint.show_fault, "One rule, with its matches and hits."),
    Route("DELETE", "/faults/{number}", _Endpoint.remove_fault, "Remove one rule."),
    Route(
        "POST", "/faults/{number}/wait", _Endpoint.await_fault, "Wait for hits.", query=("hits", "timeout_s")
    ),
    Route(
        "PUT", "/disk", _Endpoint.set_disk, "Set state (healthy, stalled, ENOSPC, …) and under (a path).",
        body=("state", "under", "broker"),
    ),
    Route("POST", "/time", _Endpoint.advance_time, "Let time pass, such as 45s.", body=("advance",)),
    Route("POST", "/snapshots", _Endpoint.take_snapshot, "Copy the data."),
    Route("POST", "/snapshots/{number}/restore", _Endpoint.restore, "Go back to the data of a snapshot."),
    Route(
        "GET", "/requests", _Endpoint.list_requests, "Last requests of clients.",
        query=("api", "client_id", "broker"),
    ),
    Route("GET", "/log", _Endpoint.show_log, "Last lines of a broker's log.", query=("broker",)),
    Route(
        "PUT", "/topics/{topic}", _Endpoint.create_topic, "Create a topic.",
        body=("partitions", "replication_factor", "configs"),
    ),
    Route("GET", "/topics/{topic}/records", _Endpoint.list_records, "All records.", query=("committed",)),
    Route("GET", _PARTITION, _Endpoint.show_partition, "Leader and in-sync replicas (clusters)."),
    Route("PUT", f"{_PARTITION}/leader", _Endpoint.move_leader, "Make a broker the leader.", body=("to",)),
    Route(
        "POST", f"{_PARTITION}/wait", _Endpoint.await_partition, "Wait for a leader, or all replicas.",
        query=("leader_is_not", "in_sync", "timeout_s"),
    ),
    Route("GET", "/groups/{group}/offsets", _Endpoint.list_offsets, "Committed offsets of a group."),
    Route(
        "POST", "/groups/{group}/wait", _Endpoint.await_group, "Wait for a state or a number of members.",
        query=("state", "members", "timeout_s"),
    ),
    Route("POST", "/groups/{group}/rebalance", _Endpoint.rebalance, "Begin a rebalance."),
    Route("DELETE", "/groups/{group}/members", _Endpoint.fence_members, "Remove all members of a group."),
    Route("POST", "/producers/{id}/fence", _Endpoint.fence_producer, "Fence a transactional id."),
)  # fmt: skip


def _state_of(broker: RunningBroker) -> str:
    if not broker.is_running:
        return "stopped"
    if broker.is_paused:
        return "paused"
    return "halted" if broker.halt_reason else "running"


def _pair(between: object) -> tuple[int, int]:
    if not isinstance(between, list) or len(between) != 2:
        raise ValueError(f"between={between!r}: write two brokers, such as [1, 3]")
    return int(between[0]), int(between[1])


def _timeout_s(asked: Asked) -> float:
    timeout_s = float(asked.query.get("timeout_s", HIT_TIMEOUT_S))
    if not 0 <= timeout_s <= TIMEOUT_S_MAX or math.isnan(timeout_s):
        raise ValueError(f"timeout_s={timeout_s}: write up to {TIMEOUT_S_MAX:.0f} seconds")
    return timeout_s


def _shown_record(record: StoredRecord) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _encoded(record.key),
        "value": _encoded(record.value),
        "headers": [[name, _encoded(value)] for name, value in record.headers],
    }


def _encoded(data: bytes | None) -> dict[str, str] | None:
    """Bytes in JSON: always as base64, and as text where they are UTF-8."""
    if data is None:
        return None
    shown = {"base64": base64.b64encode(data).decode()}
    try:
        return {**shown, "text": data.decode()}
    except UnicodeDecodeError:
        return shown
