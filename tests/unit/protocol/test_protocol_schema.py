"""Message declarations: constructors, defaults, versions, parts without copies, laziness."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.core.errors import UnsupportedVersion
from barnabas.core.ids import ZERO_UUID
from barnabas.core.regions import FileRegion
from barnabas.protocol.messages import fetch, produce
from barnabas.protocol.schema import codegen
from barnabas.protocol.schema.declarations import Part, Versions
from barnabas.protocol.schema.encoding import COPIED_BYTES_MAX
from barnabas.protocol.schema.fields import array, int16, int32, string
from barnabas.protocol.schema.message import Message


class Inner(Message):
    number: int = int32(default=-1)


class Outer(Message, versions="0-3", flexible="3+"):
    kept: int = int16("1+", ignorable=True)
    needed: str | None = string("2+", nullable="2+", default=None)
    inners: list[Inner] = array(Inner, "2+")


class BytesFile:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def fileno(self) -> int:
        raise AssertionError("nobody should send this")

    def read_at(self, position: int, length: int) -> bytes:
        return self.content[position : position + length]

    def read_now(self, position: int, length: int) -> bytes:
        return self.read_at(position, length)


def test_every_field_has_its_default() -> None:
    message = Outer()
    assert (message.kept, message.needed, message.inners) == (0, None, [])
    partition = produce.PartitionProduceResponse()
    assert (partition.log_append_time_ms, partition.record_errors, partition.current_leader) == (-1, [], None)
    assert fetch.FetchTopic().topic_id == ZERO_UUID


def test_lists_are_not_shared_between_instances() -> None:
    Outer().inners.append(Inner())
    assert Outer().inners == []
    first, _ = Outer.decode(b"", 0)
    first.inners.append(Inner())
    assert Outer.decode(b"", 0)[0].inners == []


def test_an_unknown_field_name_is_an_error() -> None:
    with pytest.raises(TypeError):
        Outer(unheard_of=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Outer().unheard_of = 1  # type: ignore[attr-defined]


def test_messages_compare_and_show_their_fields() -> None:
    assert Inner(number=1) == Inner(number=1) != Inner(number=2)
    assert Inner() != Outer()
    assert repr(Inner(number=1)) == "Inner(number=1)"


def test_a_version_that_lacks_an_ignorable_field_drops_it() -> None:
    assert Outer(kept=5).encode(0) == b""
    assert Outer(kept=5).encode(1) == b"\x00\x05"


@pytest.mark.parametrize("message", [Outer(needed="x"), Outer(needed=""), Outer(inners=[Inner()])])
def test_a_version_that_lacks_a_field_refuses_its_value(message: Outer) -> None:
    with pytest.raises(UnsupportedVersion):
        message.encode(1)
    message.encode(2)


def test_a_struct_that_the_version_lacks_is_refused_unless_it_is_all_defaults() -> None:
    fetch.FetchRequest(replica_state=fetch.ReplicaState()).encode(14)
    with pytest.raises(UnsupportedVersion):
        fetch.FetchRequest(replica_state=fetch.ReplicaState(replica_id=1)).encode(14)


def test_a_version_that_was_never_declared_is_refused() -> None:
    for version in (-1, 4):
        with pytest.raises(UnsupportedVersion):
            Outer.decoder(version)
        with pytest.raises(UnsupportedVersion):
            Outer.encoder(version)
    assert Outer.supported_versions() == range(4)


def test_versions_are_read_as_kafka_writes_them() -> None:
    assert (2 in Versions.parse("2"), 3 in Versions.parse("2")) == (True, False)
    assert [v for v in range(6) if v in Versions.parse("2-4")] == [2, 3, 4]
    assert 1000 in Versions.parse("2+")
    assert 0 not in Versions.parse("none")


def test_decoded_records_are_a_slice_of_the_frame() -> None:
    partition = produce.PartitionProduceData(index=1, records=b"0123")
    topic = produce.TopicProduceData(name="t", partition_data=[partition])
    frame = bytearray(produce.ProduceRequest(topic_data=[topic]).encode(9))
    decoded, _ = produce.ProduceRequest.decoder(9)(memoryview(frame), 0)
    view = decoded.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    view[0:1] = b"X"
    assert b"X123" in frame


def fetch_response_with(records: Part | None) -> fetch.FetchResponse:
    partition = fetch.PartitionData(partition_index=1, records=records)
    topic = fetch.FetchableTopicResponse(topic="t", partitions=[partition, partition])
    return fetch.FetchResponse(responses=[topic])


@pytest.mark.parametrize("version", [4, 12])
def test_a_file_region_becomes_a_part_and_is_not_read(version: int) -> None:
    content = b"batch" * 10
    region = FileRegion(BytesFile(content), 0, len(content))
    parts: list[Part] = []
    last = fetch.FetchResponse.encoder(version)(fetch_response_with(region), parts, bytearray())
    # A flexible version has the tagged fields of its structs after the last records.
    assert [part for part in parts if part is region] == [region, region]
    assert len(parts) == 4
    assert bytes(last) == (b"" if version == 4 else b"\x00\x00\x00")
    assert fetch_response_with(region).encode(version) == fetch_response_with(content).encode(version)


def test_an_empty_region_leaves_no_part() -> None:
    region = FileRegion(BytesFile(b""), 0, 0)
    for version in (4, 12):
        parts: list[Part] = []
        fetch.FetchResponse.encoder(version)(fetch_response_with(region), parts, bytearray())
        assert parts == []
        assert fetch_response_with(region).encode(version) == fetch_response_with(b"").encode(version)


def test_big_buffers_are_not_copied_and_small_ones_are() -> None:
    big = memoryview(bytes(COPIED_BYTES_MAX + 1))
    parts: list[Part] = []
    fetch.FetchResponse.encoder(12)(fetch_response_with(big), parts, bytearray())
    assert parts[1] is big
    parts.clear()
    fetch.FetchResponse.encoder(12)(fetch_response_with(b"small"), parts, bytearray())
    assert parts == []


def test_the_generated_code_can_be_read() -> None:
    assert "m_1.acks, m_1.timeout_ms" in codegen.source_of(produce.ProduceRequest.decoder(9))


def test_importing_one_message_imports_and_compiles_no_other() -> None:
    program = """
import sys
from barnabas.protocol import api_keys
from barnabas.protocol.schema import headers
before = {name for name in sys.modules if name.startswith("barnabas.protocol.messages.")}
from barnabas.protocol.messages.produce import ProduceRequest
after = {name for name in sys.modules if name.startswith("barnabas.protocol.messages.")}
assert before == set(), before
assert after == {"barnabas.protocol.messages.produce"}, after
assert not {"barnabas.protocol.schema.decoding", "barnabas.protocol.schema.encoding"} & set(sys.modules)
assert not {"asyncio", "socket", "ssl"} & set(sys.modules)
"""
    source = str(Path(codegen.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
