"""The regular expressions that clients send: RE2, as Apache Kafka promises (KIP-848). They match whole names.

RE2's cost is linear in the text, whatever the pattern, which Python's own backtracking matcher cannot
promise. Linear is not yet little: a pattern of thousands of states, against thousands of names, would keep
the loop for seconds. So the processor time that one question takes is counted, and a pattern that needs too
much is refused. Its memory is bounded too.

`re2` is imported when the first pattern comes: most brokers never see one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from barnabas.core.errors import InvalidRegularExpression

PATTERN_LENGTH_MAX: Final = 4_096
MEMORY_BYTES_MAX: Final = 256 * 1024
"""For the program of a pattern and what RE2 remembers while it matches."""
CPU_MS_MAX: Final = 200.0
CPU_MS_PER_NAME: Final = 0.01
"""What matching all names may cost: so much, and so much more for each, which is several times the usual."""
CACHED_MAX: Final = 64
"""Patterns that are kept compiled."""


class Regex:
    """A pattern and the names it is asked about in one question; INVALID_REGULAR_EXPRESSION if the pattern
    cannot be understood, or has cost too much."""

    __slots__ = ("_cpu_ms", "_fullmatch", "_left_ms", "_pattern")

    def __init__(
        self, pattern: str, cpu_ms: Callable[[], float] = lambda: time.thread_time() * 1_000
    ) -> None:
        self._pattern = pattern
        self._fullmatch = _compiled(pattern).fullmatch
        self._cpu_ms = cpu_ms
        self._left_ms = CPU_MS_MAX

    def matches(self, name: str) -> bool:
        begun_ms = self._cpu_ms()
        found = self._fullmatch(name) is not None
        self._left_ms += CPU_MS_PER_NAME - (self._cpu_ms() - begun_ms)
        if self._left_ms < 0:
            raise InvalidRegularExpression(f"the pattern costs too much to match: {self._pattern!r}")
        return found


@lru_cache(maxsize=CACHED_MAX)
def _compiled(pattern: str) -> Any:
    import re2  # noqa: PLC0415 - see above

    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidRegularExpression(f"a pattern has at most {PATTERN_LENGTH_MAX} characters")
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidRegularExpression(f"{error.args[0].decode()} in {pattern!r}") from None
