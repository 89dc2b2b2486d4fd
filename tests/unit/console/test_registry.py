"""The client of a schema registry, against one over real HTTP: answers, deadlines, bounds."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import cast

import pytest

from barnabas.console.formats.avro import AvroSchema
from barnabas.console.formats.bounds import Undecodable
from barnabas.console.schemas import decoders, http, registry
from barnabas.console.schemas.decoders import Decoded, PartDecoder, SchemaDecoders
from barnabas.console.schemas.http import Address
from barnabas.console.schemas.registry import REFERENCES_MAX, RegistryError
from barnabas.console.schemas.registry import Registry as Client
from barnabas.console.schemas.texts import COMPARED_MAX, differences, readable
from barnabas.core.errors import InvalidConfig
from tests.support.manual_time import ManualClock
from tests.support.schema_registry import Registry, run_registry

POINT = json.dumps({"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]})


@pytest.fixture
def served() -> Iterator[Registry]:
    with run_registry() as found:
        yield found


def client(served: Registry, clock: ManualClock | None = None) -> Client:
    return Client.of(served.url, {}, clock or ManualClock())


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + payload


def decoder(found: Client, clock: ManualClock | None = None) -> PartDecoder:
    return PartDecoder(SchemaDecoders(found), None, clock or ManualClock())


async def value_of(found: PartDecoder, data: bytes) -> object:
    shown = await found.decode(data)
    assert shown is not None
    return shown.value


async def test_a_registry_says_what_it_has(served: Registry) -> None:
    first = served.register("points-value", POINT)
    served.register("points-value", POINT.replace("int", "long"))
    served.register(
        "a/b c", "message M {}", "PROTOBUF", [{"name": "p", "subject": "points-value", "version": 1}]
    )
    served.compatibility["points-value"] = "FULL"
    found = client(served)
    assert await found.subjects() == ["a/b c", "points-value"]
    assert await found.versions("points-value") == [1, 2]
    schema = await found.schema("points-value", 1)
    assert (schema.schema_id, schema.type, schema.text, schema.version) == (first, "AVRO", POINT, 1)
    assert (await found.schema("a/b c", 1)).references[0].subject == "points-value"
    assert await found.compatibility(None) == "BACKWARD"
    assert await found.compatibility("points-value") == "FULL"
    assert await found.uses("points-value", 1) == [3]
    with pytest.raises(RegistryError, match="404: Subject not found"):
        await found.versions("missing")
    await found.close()


async def test_an_answer_is_kept_for_a_while(served: Registry) -> None:
    served.register("one", POINT)
    clock = ManualClock()
    found = client(served, clock)
    await asyncio.gather(*(found.subjects() for _ in range(20)))
    await found.subjects()
    assert served.asked == ["/subjects"]
    clock.advance(ms=registry.LISTS_KEPT_MS + 1)
    served.register("two", POINT)
    assert await found.subjects() == ["one", "two"]
    await found.schema_by_id(1)
    clock.advance(ms=10 * registry.LISTS_KEPT_MS)
    await found.schema_by_id(1)
    assert served.asked.count("/schemas/ids/1") == 1


@pytest.mark.parametrize("kind", ["hangs", "trickles", "closes", "talks nonsense", "answers without end"])
async def test_a_registry_that_does_not_answer_holds_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question waits for its deadline; the next ones do not ask until a while has passed."""
    monkeypatch.setattr(registry, "DEADLINE_S", 0.5)
    monkeypatch.setattr(http, "BODY_BYTES_MAX", 1 << 16)
    with bad_server(kind) as (url, connections):
        clock = ManualClock()
        found = Client.of(url, {}, clock)
        begun = time.monotonic()
        with pytest.raises(RegistryError) as failure:
            await found.subjects()
        assert failure.value.status == 503
        for number in range(50):
            with pytest.raises(RegistryError):
                await found.schema_by_id(number)
        assert time.monotonic() - begun < 20.0, "fifty questions do not take fifty deadlines"
        assert connections == [1]
        clock.advance(ms=registry.AWAY_MS + 1)
        with pytest.raises(RegistryError):
            await found.subjects()
        assert connections == [2]


def misbehave(sock: socket.socket, kind: str, stop: threading.Event) -> None:
    sock.settimeout(5)
    sock.recv(4096)
    match kind:
        case "hangs":
            stop.wait(30)
        case "trickles":
            sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
            while not stop.wait(0.1):
                sock.sendall(b"[")
        case "talks nonsense":
            sock.sendall(b"\x00\x01 nonsense \r\n\r\n")
        case "answers without end":
            sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            while not stop.is_set():
                sock.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")


@contextmanager
def bad_server(kind: str) -> Iterator[tuple[str, list[int]]]:
    """A server that misbehaves, and how many connections it has had."""
    count, stop = [0], threading.Event()
    threads: list[threading.Thread] = []

    def serve(sock: socket.socket) -> None:
        with sock, suppress(OSError):  # the client leaves
            misbehave(sock, kind, stop)

    def accept(listener: socket.socket) -> None:
        while not stop.is_set():
            with suppress(TimeoutError):
                sock, _ = listener.accept()
                count[0] += 1
                threads.append(threading.Thread(target=serve, args=(sock,)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        threads.append(threading.Thread(target=accept, args=(listener,)))
        threads[0].start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", count
        finally:
            stop.set()
            for each in threads:
                each.join()


def _wait(event: threading.Event) -> None:
    event.wait(2)


async def test_a_page_waits_for_a_slow_registry_once(served: Registry) -> None:
    """Each schema answers within the deadline, and fifty of them would still hold a page for minutes."""
    for number in range(50):
        served.register(f"s{number}", POINT.replace("Point", f"Point{number}"))
    slow = threading.Event()
    served.before = partial(_wait, slow)
    clock = ManualClock()
    found = client(served, clock)
    page = PartDecoder(SchemaDecoders(found), None, clock)
    clock.advance(ms=3_900.0)  # what other records of the page have waited
    begun = time.monotonic()
    for number in range(1, 51):
        with pytest.raises(Undecodable, match="slow"):
            await page.decode(framed(number, b"\x02"))
        clock.advance(ms=100.0)
    assert time.monotonic() - begun < 2.0
    slow.set()
    for task in list(found._asking.values()):
        await task
    await found.close()


async def test_a_page_decodes_for_a_while_only(served: Registry) -> None:
    """A search reads 200,000 records, and each may hold as many values."""
    served.register("a", POINT)
    clock = ManualClock()
    page = decoder(client(served, clock), clock)
    assert await value_of(page, framed(1, b"\x02")) == {"x": 1}
    page._schemas = cast("SchemaDecoders", Slow(clock))
    for _ in range(4):
        await page.decode(framed(1, b"\x02"))
    assert page.is_spent
    with pytest.raises(Undecodable, match="as much as it may"):
        await page.decode(framed(1, b"\x02"))
    assert await page.decode(b"plain") is None


class Slow:
    """Decoders that take two seconds for each value."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    async def decode(self, data: bytes, wait_s: float) -> Decoded:
        self._clock.advance(ms=2_000.0)
        return Decoded(None, "avro", "")


async def test_values_are_decoded_by_the_schema_that_they_name(served: Registry) -> None:
    avro = served.register("a", POINT)
    proto = served.register(
        "p",
        'syntax = "proto3"; message A { string s = 1; message B { int32 b = 1; } }'
        " message C { A a = 1; }",
        "PROTOBUF",
    )  # fmt: skip
    as_json = served.register("j", '{"type": "object"}', "JSON")
    other = served.register("x", "?", "THRIFT")
    found = decoder(client(served))
    assert await value_of(found, framed(avro, b"\x02")) == {"x": 1}
    assert await value_of(found, framed(proto, b"\x00\x0a\x01z")) == {"s": "z"}
    assert await value_of(found, framed(proto, b"\x04\x00\x00\x08\x05")) == {"b": 5}
    assert await value_of(found, framed(proto, b"\x02\x02\x0a\x03\x0a\x01z")) == {"a": {"s": "z"}}
    assert await value_of(found, framed(as_json, b'{"a": [1]}')) == {"a": [1]}
    assert await found.decode(b"plain text") is None
    for bad in (
        framed(other, b"x"),
        framed(999, b"x"),
        framed(avro, b""),
        framed(avro, b"\x02" + bytes(5 << 20)),
        framed(proto, b"\x06\x00\x00\x00"),
        framed(proto, b"\xff" * 9 + b"\x01"),
        framed(proto, b"\x02\x08"),
        framed(proto, b""),
        framed(as_json, b"[" * 100_000),
        framed(as_json, b"{"),
    ):
        with pytest.raises(Undecodable):
            await found.decode(bad)


async def test_references_are_followed(served: Registry) -> None:
    served.register("point", POINT)
    line = {"type": "record", "name": "Line", "fields": [{"name": "a", "type": "Point"}]}
    uses = [{"name": "Point", "subject": "point", "version": 1}]
    served.register("line", json.dumps(line), "AVRO", uses)
    shape = served.register(
        "shape", '["null", "Line", "Point"]', "AVRO",
        [{"name": "Line", "subject": "line", "version": 1}, *uses],
    )  # fmt: skip
    served.register(
        "base.proto", 'syntax = "proto3"; package b; message Money { int32 cents = 1; }', "PROTOBUF"
    )
    order = served.register(
        "order", 'syntax = "proto3"; import "base.proto"; message Order { b.Money price = 1; }', "PROTOBUF",
        [{"name": "base.proto", "subject": "base.proto", "version": 1}],
    )  # fmt: skip
    found = decoder(client(served))
    assert await value_of(found, framed(shape, b"\x02\x06")) == {"a": {"x": 3}}
    assert await value_of(found, framed(order, b"\x00\x0a\x02\x08\x07")) == {"price": {"cents": 7}}


async def test_a_bomb_of_references_is_bounded(served: Registry) -> None:
    """Each schema refers to the next one twice: 2**40 ways, and forty schemas. Then far too many."""
    for number in range(40, 0, -1):
        uses = [{"name": f"n{each}", "subject": f"s{number + 1}", "version": 1} for each in range(2)]
        text = json.dumps({"type": "record", "name": f"R{number}", "fields": []})
        served.register(f"s{number}", text, "AVRO", uses if number < 40 else [])
    found = client(served)
    first = await found.schema("s1", 1)
    assert len(await found.references(first)) == 39
    uses = [{"name": "x", "subject": f"w{number}", "version": 1} for number in range(REFERENCES_MAX + 50)]
    for number in range(REFERENCES_MAX + 50):
        served.register(f"w{number}", json.dumps({"type": "fixed", "name": f"F{number}", "size": 1}))
    bomb = served.register("bomb", '"int"', "AVRO", uses)
    with pytest.raises(Undecodable, match=f"more than {REFERENCES_MAX}"):
        await decoder(found).decode(framed(bomb, b"\x02"))


async def test_decoders_of_large_schemas_make_room_for_each_other(
    served: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoders, "SCHEMA_CHARACTERS_KEPT_MAX", 1_500)
    made = []

    class Counted(AvroSchema):
        def __init__(self, text: str, references: Sequence[str] = ()) -> None:
            made.append(json.loads(text)["name"])
            super().__init__(text, references)

    monkeypatch.setattr(decoders, "AvroSchema", Counted)
    ids = [
        served.register(name, json.dumps({"type": "fixed", "name": name, "size": 1, "doc": "d" * 500}))
        for name in "ABCD"
    ]
    found = decoder(client(served))
    for each in (0, 1, 0, 2, 3, 3, 1):
        assert await value_of(found, framed(ids[each], b"\x07")) == "07"
    assert made == ["A", "B", "C", "D", "B"]


async def test_references_in_a_circle_end(served: Registry) -> None:
    served.register("a", '"int"', "AVRO", [{"name": "b", "subject": "b", "version": 1}])
    served.register("b", '"long"', "AVRO", [{"name": "a", "subject": "a", "version": 1}])
    found = client(served)
    assert len(await found.references(await found.schema("a", 1))) == 2


async def test_credentials_are_sent_and_not_shown(served: Registry) -> None:
    found = Client.of(served.url.replace("//", "//ada:s3cret@"), {}, ManualClock())
    assert "s3cret" not in found.shown_url
    await found.subjects()
    other = Client.of(served.url, {"schema.registry.basic.auth.user.info": "bob:other"}, ManualClock())
    await other.subjects()
    assert served.authorizations == {"Basic YWRhOnMzY3JldA==", "Basic Ym9iOm90aGVy"}


@pytest.mark.parametrize(
    ("url", "given"),
    [
        ("ftp://x", {}),
        ("localhost:8081", {}),
        ("http://", {}),
        ("http://x/?q", {}),
        ("http://x:notaport", {}),
        ("http://x", {"schema.registry.ssl.truststore.location": "/x"}),
        ("http://x", {"schema.registry.nonsense": "1"}),
        ("http://x", {"schema.registry.basic.auth.user.info": "${env:BARNABAS_MISSING}"}),
    ],
)
def test_settings_that_cannot_be_are_refused(url: str, given: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        Client.of(url, given, ManualClock())


def test_addresses() -> None:
    assert Address.parse("https://u:p%40@[::1]/base/") == ("https", "::1", 443, "/base", "u:p@")


def test_differences_show_what_changed_and_a_little_around_it() -> None:
    before = "\n".join(f"line {number}" for number in range(100))
    found = differences(before, before.replace("line 50\n", "changed\nmore\n"))
    assert [each for each in found if each.change in ("added", "removed")] == [
        ("removed", "line 50"), ("added", "changed"), ("added", "more"),
    ]  # fmt: skip
    assert [each.text for each in found if each.change == "skipped"] == ["47 equal lines", "46 equal lines"]
    assert [each.change for each in differences("a", "a")] == ["skipped"]
    many = COMPARED_MAX // 1_000 + 10
    far = differences("\n".join(["a"] * many), "\n".join(["b"] * many))
    assert len(far) == 2 * many


def test_a_schema_that_nests_deeply_is_not_broken_into_lines() -> None:
    deep = "[" * 900 + "0," * 200_000 + "0" + "]" * 900
    assert readable(deep, "JSON") == deep
    assert readable('{"a": [1]}', "AVRO") == '{\n  "a": [\n    1\n  ]\n}'
    assert readable("{", "AVRO") == "{"
    assert readable("message  M {}", "PROTOBUF") == "message  M {}"
