"""The parts of the ZooKeeper session that need no server."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.protocol import serialization as jute

from barnabas.cluster.zookeeper import wire
from barnabas.cluster.zookeeper.acls import Access, access_to
from barnabas.cluster.zookeeper.session import SET_WATCHES_BYTES_MAX, set_watches_requests


@pytest.mark.parametrize(
    ("path", "access"),
    [
        ("/brokers/topics/orders", Access.OWNED),
        ("/", Access.OWNED),
        ("/config/topics/orders", Access.OWNED),
        ("/config/users/alice", Access.PRIVATE),
        ("/config/users", Access.PRIVATE),
        ("/config/brokers/1", Access.PRIVATE),
        ("/delegation_token/tokens/x", Access.PRIVATE),
        ("/delegation_token/token_changes", Access.OWNED),
        ("/consumers", Access.OPEN),
        ("/consumers/group", Access.OWNED),
    ],
)
def test_secrets_are_their_owners_alone(path: str, access: Access) -> None:
    assert access_to(path, is_secure=True) is access
    assert access_to(path, is_secure=False) is Access.OPEN


def _paths(request: wire.SetWatches) -> tuple[int, list[list[str]]]:
    """Decoder of requests, as a server reads them."""
    buffer = bytes(request.serialize())
    (zxid,) = jute.long_struct.unpack_from(buffer, 0)
    offset = 8
    kinds: list[list[str]] = []
    for _ in range(3):
        (count,) = jute.int_struct.unpack_from(buffer, offset)
        offset += 4
        kinds.append([])
        for _ in range(count):
            path, offset = jute.read_string(buffer, offset)
            kinds[-1].append(path)
    assert offset == len(buffer)
    return zxid, kinds


def test_watches_are_set_again_in_requests_of_bounded_size() -> None:
    kinds = [[f"/{kind}/{'ü' * 100}/{number}" for number in range(1_000)] for kind in range(3)]
    requests = set_watches_requests(77, kinds)
    assert len(requests) > 3
    merged: list[list[str]] = [[], [], []]
    for request in requests:
        assert len(request.serialize()) <= SET_WATCHES_BYTES_MAX + 1_000
        zxid, paths = _paths(request)
        assert zxid == 77
        for into, page in zip(merged, paths, strict=True):
            into.extend(page)
    assert merged == kinds


def test_no_watches_are_no_request() -> None:
    assert set_watches_requests(77, [[], [], []]) == []


def test_an_unknown_error_of_the_server_names_itself() -> None:
    error = wire.translate(jute.EXCEPTIONS[-115](), "/a")
    assert "/a" in str(error)


def test_the_failure_of_a_transaction_is_the_one_that_was_not_rolled_back() -> None:
    rolled_back, bad_version, inconsistent = (jute.EXCEPTIONS[code]() for code in (0, -103, -2))
    assert wire.first_failure([rolled_back, bad_version, inconsistent]) == (1, bad_version)
    assert wire.first_failure(["/a", True]) is None


class _Growing:
    """A request during whose sending another thread asks for more."""

    type = 3

    def __init__(self, queue: deque[Any], left: int) -> None:
        self._queue = queue
        self._left = left

    def serialize(self) -> bytes:
        if self._left:
            self._queue.append((_Growing(self._queue, self._left - 1), None))
        return b"body"


def test_requests_may_be_added_while_others_are_sent() -> None:
    queue: deque[Any] = deque()
    queue.extend((_Growing(queue, 2), None) for _ in range(3))
    client = SimpleNamespace(_queue=queue, _pending=deque())
    connection = wire._Connection.__new__(wire._Connection)
    written: list[bytes] = []
    connection.client, connection._xid = client, 0
    connection._write = lambda data, _: written.append(data)
    connection._read_sock = SimpleNamespace(recv=lambda _: b"")
    connection._send_request(1.0, 1.0)
    assert [xid for *_, xid in client._pending] == [1, 2, 3]
    assert len(queue) == 3
    assert b"".join(written) == b"".join(
        len(b"body" * 3).to_bytes(4) + xid.to_bytes(4) + (3).to_bytes(4) + b"body" for xid in (1, 2, 3)
    )
