"""Headers and frames, against bytes laid out by hand."""

from __future__ import annotations

from struct import pack

import pytest

from barnabas.core.limits import STRING_BYTES_MAX
from barnabas.core.regions import FileRegion
from barnabas.protocol.api_keys import FLEXIBLE_SINCE, NEVER_FLEXIBLE, ApiKey
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.leave_group import LeaveGroupResponse
from barnabas.protocol.schema.declarations import Part
from barnabas.protocol.schema.headers import (
    RequestHeader,
    encode_request,
    encode_response,
    read_request_header,
    read_response_header,
    response_encoder,
)


def joined(parts: list[Part]) -> bytes:
    return b"".join(part.read() if isinstance(part, FileRegion) else part for part in parts)


def test_header_v1_has_a_client_id_and_no_tagged_fields() -> None:
    frame = joined(encode_request(ApiKey.HEARTBEAT, 0, 7, "me", HeartbeatRequest()))
    assert frame.startswith(pack(">hhih", 12, 0, 7, 2) + b"me")
    assert read_request_header(memoryview(frame)) == RequestHeader(12, 0, 7, "me", 12)


def test_header_v2_ends_with_tagged_fields() -> None:
    frame = joined(encode_request(ApiKey.HEARTBEAT, 4, 7, "me", HeartbeatRequest(group_id="g")))
    header = read_request_header(memoryview(frame))
    assert header == RequestHeader(12, 4, 7, "me", 13)
    message, end = HeartbeatRequest.decode(frame, 4, header.body_position)
    assert (message.group_id, end) == ("g", len(frame))


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = pack(">hhih", 12, 4, 7, -1) + b"\x02" + b"\x00\x03abc" + b"\x81\x01\x00" + b"body"
    assert read_request_header(memoryview(frame)) == RequestHeader(12, 4, 7, None, len(frame) - 4)


def test_controlled_shutdown_v0_has_no_client_id() -> None:
    frame = joined(
        encode_request(ApiKey.CONTROLLED_SHUTDOWN, 0, 7, "me", ControlledShutdownRequest(broker_id=1))
    )
    assert frame == pack(">hhii", 7, 0, 7, 1)
    assert read_request_header(memoryview(frame)) == RequestHeader(7, 0, 7, None, 8)
    assert read_request_header(memoryview(frame[:8])) == RequestHeader(7, 0, 7, None, 8)


def test_a_client_id_that_is_not_utf8_is_tolerated() -> None:
    frame = pack(">hhih", 3, 0, 7, 2) + b"\xff\xfe"
    assert read_request_header(memoryview(frame)).client_id == "\ufffd\ufffd"


def test_a_client_id_never_takes_more_bytes_than_a_string_may_have() -> None:
    for raw in (b"\xff" * 32_767, b"\xe2\x82" * 16_383, "\ufffd".encode() * 10_922, b"ok\xf0\x9f\x98"):
        client_id = read_request_header(memoryview(pack(">hhih", 12, 0, 7, len(raw)) + raw)).client_id
        assert client_id is not None
        assert len(client_id.encode()) <= STRING_BYTES_MAX


def test_an_unknown_api_key_still_has_a_readable_header() -> None:
    frame = pack(">hhih", 999, 3, 7, 2) + b"me"
    assert read_request_header(memoryview(frame)) == RequestHeader(999, 3, 7, "me", 12)


def test_a_version_of_the_future_has_a_readable_header() -> None:
    frame = pack(">hhih", 18, 99, 7, 2) + b"me" + b"\x00"
    assert read_request_header(memoryview(frame)) == RequestHeader(18, 99, 7, "me", 13)


@pytest.mark.parametrize("key", [0, 7, 12, 18, 999])
@pytest.mark.parametrize("version", [0, 4])
def test_a_truncated_header_is_malformed(key: int, version: int) -> None:
    whole = pack(">hhih", key, version, 7, 2) + b"me"
    body = read_request_header(memoryview(whole + b"\x00")).body_position
    for length in range(body):
        with pytest.raises(MalformedMessage):
            read_request_header(memoryview((whole + b"\x00")[:length]))


def test_a_client_id_longer_than_the_frame_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        read_request_header(memoryview(pack(">hhih", 3, 0, 7, 3) + b"me"))


def test_response_header_follows_the_version() -> None:
    assert joined(encode_response(7, HeartbeatResponse(), 0)) == pack(">ih", 7, 0)
    assert joined(encode_response(7, HeartbeatResponse(), 4)) == pack(">ibihb", 7, 0, 0, 0, 0)
    assert read_response_header(memoryview(pack(">ih", 7, 0)), ApiKey.HEARTBEAT, 0) == (7, 4)
    assert read_response_header(memoryview(pack(">ibihb", 7, 0, 0, 0, 0)), ApiKey.HEARTBEAT, 4) == (7, 5)
    for short in (b"", b"\x00\x00\x00", b"\x00\x00\x00\x07"):
        with pytest.raises(MalformedMessage):
            read_response_header(memoryview(short), ApiKey.HEARTBEAT, 4)


def test_an_answer_of_another_class_is_not_written_as_this_one() -> None:
    with pytest.raises(AssertionError, match="LeaveGroupResponse instead of HeartbeatResponse"):
        response_encoder(HeartbeatResponse, 4).encode(7, LeaveGroupResponse())


def test_the_api_versions_response_header_is_never_flexible() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])
    frame = joined(encode_response(7, response, 3))
    assert frame == pack(">ihb", 7, 0, 2) + pack(">hhhb", 18, 0, 4, 0) + pack(">ib", 0, 0)
    assert read_response_header(memoryview(frame), ApiKey.API_VERSIONS, 3) == (7, 4)
    request = joined(encode_request(ApiKey.API_VERSIONS, 3, 7, None, ApiVersionsRequest()))
    assert request == pack(">hhihb", 18, 3, 7, -1, 0) + b"\x01\x01\x00"


def test_the_header_table_agrees_with_the_declarations() -> None:
    for number, since in FLEXIBLE_SINCE.items():
        for cls in (request_class(ApiKey(number)), response_class(ApiKey(number))):
            schema = cls.__schema__
            assert schema.api == number
            first = schema.flexible.first if schema.flexible.last >= 0 else NEVER_FLEXIBLE
            assert first == since, cls
        versions = request_class(ApiKey(number)).supported_versions()
        assert versions == response_class(ApiKey(number)).supported_versions()


def test_an_api_without_messages_is_told_apart() -> None:
    with pytest.raises(LookupError):
        request_class(ApiKey.VOTE)
