"""JSON bodies of HTTP requests."""

from __future__ import annotations

import pytest

from barnabas.network.http.json_body import read_json


@pytest.mark.parametrize(
    "body",
    [
        rb'{"name": "\ud800"}',
        rb'{"\uDFFF": 1}',
        rb'["\ud83d", "\udc1e"]',
        rb'"\udc1e\ud83d"',
        b"{",
        b"9" * 5_000,
        b'"\xff"',
    ],
)
def test_what_no_answer_can_repeat_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of the decoder or the encoder
        read_json(body)


def test_pairs_of_surrogates_are_characters() -> None:
    assert read_json(rb'{"a": "\ud83d\udc1e \\ud800"}') == {"a": "🐞 \\ud800"}
    assert read_json('{"a": "🐞"}'.encode()) == {"a": "🐞"}
