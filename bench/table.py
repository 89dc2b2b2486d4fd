"""The works in the order in which a round does them; the last one kills the broker."""

from __future__ import annotations

from collections.abc import Callable

import beside_works
import wide_works
import works
from tests.support.broker import Broker

WORKS: dict[str, Callable[[Broker, works.Scale], works.Figures]] = {
    "produce_1k": works.produce_1k,
    "produce_100b": works.produce_100b,
    "consume": works.consume,
    "growth": works.growth,
    "one_record_requests": works.one_record_requests,
    "large_batches": works.large_batches,
    "beside": beside_works.beside,
    "end_to_end": works.end_to_end,
    "connections": wide_works.connections,
    "group": wide_works.group,
    "commits": wide_works.commits,
    "transactions": wide_works.transactions,
    "partitions": wide_works.partitions,
}
