"""Targets of the fuzzer: a reader, and inputs that are valid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from barnabas.core.errors import KafkaError

Run: TypeAlias = Callable[[bytes], None]


class Target(NamedTuple):
    name: str
    run: Run
    seeds: Sequence[bytes]
    """Inputs that are valid, to begin with."""
    is_text: bool = False


def of(
    name: str,
    read: Callable[[bytes], Any],
    *seeds: bytes,
    refusals: tuple[type[Exception], ...] = (KafkaError,),
    write: Callable[[Any], bytes] | None = None,
) -> Target:
    def run(data: bytes) -> None:
        try:
            found = read(data)
        except refusals:
            return
        if write is not None:
            assert read(write(found)) == found, "written and read again it is another"

    return Target(name, run, seeds)


def of_text(
    name: str,
    read: Callable[[str], Any],
    *seeds: str,
    refusals: tuple[type[Exception], ...] = (KafkaError,),
    write: Callable[[Any], str] | None = None,
) -> Target:
    def run(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        try:
            found = read(text)
        except refusals:
            return
        if write is not None:
            assert read(write(found)) == found, "written and read again it is another"

    return Target(name, run, [each.encode() for each in seeds], is_text=True)
