"""Frames of recorded traffic: what cannot be decoded passes, and secrets are not recorded."""

from __future__ import annotations

import struct

import pytest

from barnabas.protocol.api_keys import ApiKey
from barnabas.testing.traffic.frames import decode_request

CORRELATION_ID = 7
NEWER = 99


def request_frame(api: int, version: int, body: bytes = b"") -> bytes:
    return struct.pack(">hhih", api, version, CORRELATION_ID, -1) + body


@pytest.mark.parametrize("api", ApiKey, ids=lambda api: api.name)
def test_an_unknown_version_or_api_is_no_error(api: ApiKey) -> None:
    request = decode_request(request_frame(api, NEWER))
    assert request.message is None
    assert request.has_answer
    assert request.decoded_answer(struct.pack(">i", CORRELATION_ID)) is None
