"""One step of a sequence, drawn from chance or read from a file.

A step holds the very bytes that were sent. Ids that the broker chose (a member, a topic id) differ in every
run, so a step also says how many of them its sequence had met; a replay puts its own in their place.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from barnabas.core.errors import KafkaError
from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages import request_class
from barnabas.protocol.schema.headers import request_header_fields
from barnabas.protocol.schema.message import Message
from tests.fuzz import frames
from tests.fuzz.frames import Drawing
from tests.fuzz.plausible import draw_plausible
from tests.support import hostile

ASK, BYTES, CLOSE, RESTART, KILL, PAUSE = "ask", "bytes", "close", "restart", "kill", "pause"

SLOTS = ("alice", "alice", "alice", "mallory", "mallory", "admin", "alice", "alice", "alice")
"""Connections of a sequence, by their users. The last three belong to members of groups."""
WAITING_SLOT, ADMIN_SLOT = 2, 5
"""JoinGroup and SyncGroup of alice have a connection of their own: requests behind them wait with them."""
DRAWN_SLOTS = (0, 0, 1, 1, 0, 3, 4, 3, 4, 5)
MEMBER_SLOTS = (6, 7, 8)
MAY_WAIT = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})

STATEFUL = (
    *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR),
    *(ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT),
    *(ApiKey.OFFSET_FETCH, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN),
    *(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT),
    *(ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS),
)
"""Drawn more often than the rest: these leave something behind."""

NOT_BY_ADMIN = frozenset(
    {
        *(ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS),
        *(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.CONTROLLED_SHUTDOWN),
    }
)
"""An administrator may slow a broker down; that is no finding."""

DAMAGED = 0x55000000
CHANGED_OF_512 = 20
CLIENT_IDS = [b"fuzz"] * 252 + [b"", b"x" * 500, "🐞".encode(), b"fuzz/../"]

SASL = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
CASES = tuple(
    (api.key, version) for api in APIS.for_clients() for version in api.versions if api.key not in SASL
)
STATEFUL_CASES = tuple((key, version) for key, version in CASES if key in STATEFUL)
ADMIN_CASES = tuple((key, version) for key, version in CASES if key not in NOT_BY_ADMIN)


class Step(NamedTuple):
    do: str
    slot: int = 0
    key: int = -1
    version: int = -1
    frame: bytes = b""
    known: int = 0
    """Ids of the broker that the sequence had met when the frame was drawn."""
    is_answered: bool = True
    pause_ms: int = 0
    """Of a PAUSE: how long answers that wait for others, and timers, are given."""

    @property
    def user(self) -> str:
        return SLOTS[self.slot]

    @property
    def told(self) -> str:
        """The request as text, as far as it can be read."""
        if not self.frame:
            return ""
        try:
            return hostile.shortened(_read(self.frame, ApiKey(self.key), self.version))
        except MalformedMessage as error:
            return f"unreadable: {error}"


def draw(drawing: Drawing, correlation_id: int) -> Step:
    """A request that can be read."""
    random, pool = drawing.random, drawing.pool
    slot = random.choice(DRAWN_SLOTS)
    if slot == ADMIN_SLOT and random.random() < 0.7:
        slot = 0
    cases = ADMIN_CASES if slot == ADMIN_SLOT else STATEFUL_CASES if random.random() < 0.6 else CASES
    key, version = random.choice(cases)
    message: Message | None = None
    if SLOTS[slot] == "alice" and random.random() < 0.25:
        key, version, message = draw_plausible(random, pool)
        try:
            frame = hostile.frame_of(key, version, message, correlation_id, "fuzz")
        except KafkaError:  # the drawn value does not fit into this version
            return Step(CLOSE, slot)
    else:
        client_id = CLIENT_IDS[drawing.bits(8)]
        drawing.is_large = random.random() < drawing.large
        frame = frames.frame(drawing, key, version, correlation_id, client_id)
        if drawing.bits(9) < CHANGED_OF_512:
            frame = _changed(frame, key, version, len(client_id), random)
    if key in MAY_WAIT and SLOTS[slot] == "alice":
        slot = WAITING_SLOT
    is_answered = True
    if key is ApiKey.PRODUCE:
        message = message or _read(frame, key, version)
        is_answered = message.acks != 0  # type: ignore[attr-defined]
    return Step(ASK, slot, key, version, frame, len(pool.learned), is_answered)


def _changed(frame: bytes, key: ApiKey, version: int, client_id_size: int, random: Random) -> bytes:
    """With bytes of its body changed, if it can still be read: other values than a declaration suggests."""
    begin = 10 + client_id_size
    body = frame[begin:]
    changed = frame[:begin] + hostile.mutated(body, body, random)
    try:
        _read(changed, key, version)
    except MalformedMessage:
        return frame
    return changed


def _read(frame: bytes, key: ApiKey, version: int) -> Message:
    view = memoryview(frame)
    return _decoder(key, version)(view, request_header_fields(view)[4])[0]


@cache
def _decoder(key: ApiKey, version: int) -> Callable[[memoryview, int], tuple[Message, int]]:
    return request_class(key).decoder(version)


def draw_damaged(drawing: Drawing, slot: int, correlation_id: int) -> Step:
    """A frame with changed bytes: mostly the broker closes the connection."""
    random = drawing.random
    key, version = random.choice(ADMIN_CASES if slot == ADMIN_SLOT else CASES)
    drawing.is_large = False
    # An id that no other request has, so that its answer is taken for nobody else's.
    frame = frames.frame(drawing, key, version, DAMAGED | correlation_id, b"fuzz")
    damaged = hostile.mutated(frame, frame, random)
    if random.random() < 0.2:  # a client id as no text
        size = random.choice((256, 12_000))
        damaged = frame[:8] + size.to_bytes(2, "big") + b"\xff" * size + frame[14:]
    return Step(BYTES, slot, key, version, damaged, len(drawing.pool.learned))


class Recording(NamedTuple):
    """A sequence as it was sent: what a replay needs, and a reader."""

    seed: int
    steps: list[Step]
    learned: list[bytes]
    complaints: list[str] = []  # noqa: RUF012 - never changed

    def without(self, begin: int, end: int) -> Recording:
        return self._replace(steps=self.steps[:begin] + self.steps[end:])

    def write(self, path: Path) -> None:
        content = {
            "seed": self.seed,
            "complaints": self.complaints[:10],
            "learned": [base64.b64encode(each).decode() for each in self.learned],
            "steps": [_written(step) for step in self.steps],
        }
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Recording:
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            content["seed"],
            [_read_step(each) for each in content["steps"]],
            [base64.b64decode(each) for each in content["learned"]],
            content["complaints"],
        )


def _written(step: Step) -> dict[str, Any]:
    fields = step._asdict()
    fields["frame"] = base64.b64encode(step.frame).decode()
    written = {
        name: value for name, value in fields.items() if value != Step._field_defaults.get(name, object())
    }
    return {**written, "told": step.told}


def _read_step(written: dict[str, Any]) -> Step:
    fields = {name: value for name, value in written.items() if name != "told"}
    return Step(**{**fields, "frame": base64.b64decode(fields.get("frame", ""))})
