"""Results and errors of a call about several resources.

A call returns the results by resource when every resource succeeded. One resource alone raises its own error.
Several raise `SomeFailed`, which has the errors and the results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping
from typing import Any, TypeVar

from barnabas.client.core.cluster_state import ClusterState
from barnabas.client.core.steps import Steps
from barnabas.core.errors import KafkaError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")


class SomeFailed(Exception):
    """Some resources of a call failed."""

    def __init__(self, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]) -> None:
        self.errors = dict(errors)
        self.results = dict(results)
        shown = "; ".join(f"{key}: {error.message}" for key, error in list(errors.items())[:5])
        more = f" and {len(errors) - 5} more" if len(errors) > 5 else ""
        super().__init__(f"{len(errors)} of {len(errors) + len(results)} failed: {shown}{more}")


def settle(results: Mapping[K, T], errors: Mapping[K, KafkaError]) -> dict[K, T]:
    """The results, or the errors as an exception."""
    if not errors:
        return dict(results)
    if len(errors) + len(results) == 1:
        raise next(iter(errors.values()))
    raise SomeFailed(errors, results)


async def of_each(calls: Mapping[K, Coroutine[Any, Any, T]]) -> dict[K, T]:
    """Run a call for each resource at the same time."""
    found = await asyncio.gather(*calls.values(), return_exceptions=True)
    results: dict[K, T] = {}
    errors: dict[K, KafkaError] = {}
    for key, outcome in zip(calls, found, strict=True):
        if isinstance(outcome, KafkaError):
            errors[key] = outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            results[key] = outcome
    return settle(results, errors)


def each_row(
    state: ClusterState,
    rows: Mapping[K, R],
    attempt: Callable[[Mapping[K, R]], Steps[Mapping[K, T | KafkaError]]],
) -> Steps[dict[K, T]]:
    """One request for all rows. Rows with a transient error are sent again, without the others."""
    left = dict(rows)
    results: dict[K, T] = {}
    errors: dict[K, KafkaError] = {}

    def once() -> Steps[None]:
        transient: KafkaError | None = None
        found = yield from attempt(left)
        for key, outcome in found.items():
            if not isinstance(outcome, KafkaError):
                results[key] = outcome
            elif outcome.retriable:
                transient = outcome
                continue
            else:
                errors[key] = outcome
            left.pop(key, None)
        if transient is not None:
            raise transient

    try:
        yield from state.retrying(once, unknown_topic_timeout_ms=0)
    except KafkaError as error:
        errors |= dict.fromkeys(left, error)
    return settle(results, errors)
