"""Budget of one request: names, records, inflated bytes, answer bytes and elements.

A request of fifty bytes can name a batch of five million records, and one of a megabyte can name a hundred
thousand topics. Slices keep such work from stopping the loop. The budget keeps it from running forever and
from filling the memory. The context of a request carries the budget. Each part that works for the request
spends it: authorization, the search of a log by timestamp, decompression, the encoder of the answer. An
exhausted amount raises an error, which becomes the answer of the element at fault.

Decoded elements and loop time belong to the same budget. The decoder bounds the first (`Api.elements_max`),
the request's stopwatch the second (`requests.time_slicing`).
"""

from __future__ import annotations

from barnabas.core.errors import InvalidRequest, MessageTooLarge, RequestTimedOut
from barnabas.core.limits import (
    ANSWER_BYTES_MAX,
    ANSWER_ELEMENTS_MAX,
    INFLATED_REQUEST_BYTES_MAX,
    NAMES_CHECKED_MAX,
    RECORDS_WALKED_MAX,
)


class Budget:
    """Remaining amounts."""

    __slots__ = ("answer_bytes", "answer_elements", "inflated_bytes", "names", "records")

    def __init__(self) -> None:
        self.names = NAMES_CHECKED_MAX
        self.records = RECORDS_WALKED_MAX
        self.inflated_bytes = INFLATED_REQUEST_BYTES_MAX
        self.answer_bytes = ANSWER_BYTES_MAX
        self.answer_elements = ANSWER_ELEMENTS_MAX

    def spend_names(self, count: int = 1) -> None:
        """For authorization checks, one per resource and operation."""
        self.names -= count
        if self.names < 0:
            raise InvalidRequest(f"a request may name {NAMES_CHECKED_MAX} resources")

    def spend_records(self, count: int) -> None:
        """For records that the broker reads one by one."""
        self.records -= count
        if self.records < 0:
            raise RequestTimedOut(f"the request would read more than {RECORDS_WALKED_MAX} records")

    def spend_inflated(self, size_bytes: int) -> None:
        """For compressed batches that the broker must read."""
        self.inflated_bytes -= size_bytes
        if self.inflated_bytes < 0:
            raise MessageTooLarge(f"the records inflate to more than {INFLATED_REQUEST_BYTES_MAX} bytes")

    def spend_elements(self, count: int) -> None:
        """For elements of the answer that come from state: one name in the request can multiply them."""
        self.answer_elements -= count
        if self.answer_elements < 0:
            raise InvalidRequest(
                f"the answer would have more than {ANSWER_ELEMENTS_MAX} elements: ask for less"
            )

    def spend_answer(self, size_bytes: int) -> None:
        """For bytes of the answer in memory; records that `sendfile` sends do not count."""
        self.answer_bytes -= size_bytes
        if self.answer_bytes < 0:
            raise InvalidRequest(f"the answer would be larger than {ANSWER_BYTES_MAX} bytes: ask for less")
