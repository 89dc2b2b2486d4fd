"""An answer is as large as its request and the state of the broker allow, can be read, and is no bug of ours.

`STATE_BYTES` is what a broker with a handful of topics, groups and settings has to tell. Records that a Fetch
asked for come on top, up to its own limit.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.protocol.api_keys import ApiKey
from tests.fuzz.reading import codes_in
from tests.fuzz.sequence import Exchange
from tests.fuzz.steps import Step

TIMES_REQUEST_MAX = 24
STATE_BYTES = 256 << 10
FETCHED_BYTES_MAX = 4 << 20
UNKNOWN_SERVER_ERROR = -1


def complaints(exchange: Exchange) -> Iterator[str]:
    step, size = exchange.step, len(exchange.answer)
    allowed = TIMES_REQUEST_MAX * len(step.frame) + STATE_BYTES
    if step.key == ApiKey.FETCH:
        allowed += FETCHED_BYTES_MAX
    if size > allowed:
        yield f"large answer: {_name(step)} of {len(step.frame)} bytes is answered with {size}"
    if exchange.message is not None and UNKNOWN_SERVER_ERROR in codes_in(exchange.message):
        yield f"unknown server error: {_name(step)}: {step.told}"


def _name(step: Step) -> str:
    return f"{ApiKey(step.key).name} v{step.version}"
