"""Fault rules: which requests of clients go wrong, how, and how often.

    broker.faults.add(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=3)
    broker.faults.add(api="Produce", drop="after")            # the work is done, the response is lost
    rule = broker.faults.add(api="Fetch", delay="2s", client_id="slow-reader")
    rule.wait_for_hits(1)

A rule matches a request if everything matches that the rule names. The first rule that matches is applied, in
the order in which they were added. `after` matches pass unharmed, then `times` are hit, each with
`probability`, drawn from `seed`. A rule that has used up its hits stays in the list and does nothing.

A rule that observes counts the request and lets it pass on to the next rule.

Rules are added by the thread of the test and applied on the broker's loop, so one lock guards them. Rules of
a cluster apply at each of its brokers, after the broker's own, and count the requests of all of them.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal, TypeGuard

from barnabas.core.errors import KafkaError
from barnabas.protocol.api_keys import ApiKey
from barnabas.testing.asking.names import api_named, error_named
from barnabas.testing.faults.actions import Action, check_action
from barnabas.testing.faults.reach import check_reach
from barnabas.testing.faults.selection import Selection

__all__ = ["FaultRule", "Faults"]

HIT_TIMEOUT_S: Final = 30.0
DURATION_S_MAX: Final = 10 * 365 * 86_400.0
THROTTLE_MS_MAX: Final = (1 << 31) - 1
"""A response has 32 bits for it."""
Drop = Literal["before", "after", "during"]

Answer = Callable[[Any], Any]
"""Takes a request of `barnabas.protocol.messages`, and returns its response, or None."""
Change = Callable[[Any, Any], None]
"""Takes the request and the broker's response, and changes the response in place."""
When = Callable[[Any], bool]
"""Takes a request of `barnabas.protocol.messages`, and tells whether the rule matches it."""

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Effect:
    """Effect of a rule on the requests that it hits."""

    error: type[KafkaError] | None
    """The selected elements get this error and are not handled; the broker serves all others."""
    is_applied: bool
    """The selected elements are handled before they get the error."""
    drop: Drop | None
    """The connection closes before the work, after it instead of the response, or in the middle of the
    response."""
    action: Action | None
    """Action on the broker before the request is handled."""
    answer: Answer | None
    """A function of the test that answers the request, or returns None to let it pass."""
    change: Change | None
    """A function of the test that changes the response."""
    delay_ms: int
    """The request waits this long before it is handled, and the connection with it."""
    throttle_ms: int
    """The response says that the client is above its quota, and the connection is not read meanwhile."""

    @property
    def is_observation(self) -> bool:
        return self == _NOTHING


_NOTHING: Final = Effect(None, False, None, None, None, None, 0, 0)


def _check(effect: Effect, *, observe: bool) -> None:
    """Raise ValueError for an effect that contradicts itself, or does nothing."""
    if effect.is_applied and effect.error is None:
        raise ValueError("applied=True says when an error is answered: give the error")
    if effect.is_observation is not observe:
        raise ValueError(
            "a fault needs an effect: error, drop, action, answer, change, delay or throttle; or"
            " observe=True, and none of them"
        )
    if effect.answer is not None and (effect.drop or effect.error or effect.change):
        raise ValueError("answer is the whole response: give no error, drop or change with it")
    if effect.drop not in (None, "before", "after", "during"):
        raise ValueError(
            f"drop={effect.drop!r}: write 'before' or 'after' (the work), or 'during' (the response)"
        )
    if effect.drop is not None and effect.error is not None:
        raise ValueError("a dropped connection carries no error: give either error or drop")
    if effect.throttle_ms > THROTTLE_MS_MAX:
        raise ValueError(f"throttle: a response says at most {THROTTLE_MS_MAX // 1_000} seconds")


class FaultRule:
    """One rule. `hits` and `matches` count requests; `remove` takes the rule away."""

    def __init__(
        self,
        owner: Faults,
        effect: Effect,
        selection: Selection,
        *,
        api: ApiKey | None,
        version: int | None,
        client_id: str | None,
        when: When | None,
        times: int | None,
        after: int,
        probability: float,
        seed: int,
    ) -> None:
        self.effect = effect
        self.selection = selection
        self.api = api
        self.version = version
        self.client_id = client_id
        self.when = when
        self.matches = 0
        """Requests that matched, hit or not."""
        self.hits = 0
        self._owner = owner
        self._times = times
        self._after = after
        self._probability = probability
        self._random = Random(seed)  # noqa: S311 - the same faults for the same seed
        self._is_removed = False
        self._on_hit: set[Callable[[], object]] = set()
        """Callbacks of coroutines that wait for hits."""

    def covers(self, api_key: int, version: int, client_id: str | None) -> bool:
        """Whether the header of a request matches; its elements are looked at afterwards."""
        return (
            (self.api is None or self.api == api_key)
            and (self.version is None or self.version == version)
            and (self.client_id is None or self.client_id == client_id)
        )

    @property
    def is_spent(self) -> bool:
        """Whether the rule has hit as many requests as it may."""
        return self._times is not None and self.hits >= self._times

    def take(self) -> bool:
        """Count a request that matches, and tell whether it is hit."""
        with self._owner.changed:
            self.matches += 1
            is_early = self.matches <= self._after
            is_over = self.is_spent or self._is_removed
            if is_early or is_over or self._random.random() >= self._probability:
                return False
            self.hits += 1
            self._notify()
            return True

    def wait_for_hits(self, count: int = 1, timeout_s: float = HIT_TIMEOUT_S) -> None:
        """Block until the rule has hit `count` requests. Raises TimeoutError, and RuntimeError if the rule is
        removed before."""
        self._check_count(count)
        with self._owner.changed:
            if not self._owner.changed.wait_for(lambda: self._is_decided(count), timeout_s):
                raise self._late(count, timeout_s)
            self._check_not_removed(count)

    async def hit(self, count: int = 1, timeout_s: float = HIT_TIMEOUT_S) -> None:
        """`wait_for_hits` for a test on an event loop. A wait that is cancelled leaves no thread behind."""
        self._check_count(count)
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def notice() -> None:
            with suppress(RuntimeError):  # the loop of the test has ended
                loop.call_soon_threadsafe(changed.set)

        with self._owner.changed:
            self._on_hit.add(notice)
        try:
            async with asyncio.timeout(timeout_s):
                while not self._is_decided(count):
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            raise self._late(count, timeout_s) from None
        finally:
            with self._owner.changed:
                self._on_hit.discard(notice)
        self._check_not_removed(count)

    def _is_decided(self, count: int) -> bool:
        """Whether a wait for so many hits is over."""
        return self.hits >= count or self._is_removed

    def _check_not_removed(self, count: int) -> None:
        if self.hits < count:
            raise RuntimeError(f"{self} was removed after {self.hits} hits; the test waits for {count}")

    def _notify(self) -> None:
        """Wake what waits for hits; the lock is held."""
        self._owner.changed.notify_all()
        for each in self._on_hit:
            each()

    def _end(self) -> None:
        """No request is hit any more; the lock is held."""
        self._is_removed = True
        self._notify()

    def _check_count(self, count: int) -> None:
        """Raise ValueError for a wait that cannot end."""
        if self._times is not None and count > self._times:
            raise ValueError(f"{self} hits {self._times} requests at most; do not wait for {count}")

    def _late(self, count: int, timeout_s: float) -> TimeoutError:
        return TimeoutError(f"{self} hit {self.hits} requests in {timeout_s:g} s, not {count}")

    def remove(self) -> None:
        self._owner.remove(self)

    def __str__(self) -> str:
        named = {
            "api": None if self.api is None else self.api.camel_name,
            **self.selection.shown(),
            "client_id": self.client_id,
            "version": self.version,
            "when": None if self.when is None else "a function of the test",
            "observe": self.effect.is_observation or None,
            "error": None if self.effect.error is None else self.effect.error.protocol_name(),
            "applied": self.effect.is_applied or None,
            "drop": self.effect.drop,
            "action": self.effect.action,
            "answer": None if self.effect.answer is None else "a function of the test",
            "change": None if self.effect.change is None else "a function of the test",
            "delay_ms": self.effect.delay_ms or None,
            "throttle_ms": self.effect.throttle_ms or None,
            "times": self._times,
        }
        return f"fault({', '.join(f'{name}={value}' for name, value in named.items() if value is not None)})"


class Faults:
    """The rules of one broker, or of all brokers of a cluster, in their order."""

    def __init__(self, of_cluster: Faults | None = None, *, in_cluster: bool = False) -> None:
        self.changed = threading.Condition()
        self.in_cluster = in_cluster or of_cluster is not None
        """Whether other brokers can take over."""
        self._of_cluster = of_cluster
        self.are_suspended = False
        """Whether no rule applies, as while the broker stops."""
        self._rules: tuple[FaultRule, ...] = ()

    def add(
        self,
        *,
        api: str | None = None,
        topic: str | None = None,
        partition: int | Collection[int] | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        resource: str | None = None,
        client_id: str | None = None,
        version: int | None = None,
        when: When | None = None,
        observe: bool = False,
        error: str | int | None = None,
        applied: bool = False,
        drop: Drop | None = None,
        action: Action | None = None,
        answer: Answer | None = None,
        change: Change | None = None,
        delay: str | float = 0,
        throttle: str | float = 0,
        times: int | None = None,
        after: int = 0,
        probability: float = 1.0,
        seed: int = 0,
    ) -> FaultRule:
        """Add a rule. `delay` and `throttle` are texts such as "500ms" or seconds.

        Raises ValueError for a rule that could never have an effect.
        """
        _check_switches(observe=observe, applied=applied)
        effect = Effect(
            error=None if error is None else error_named(error),
            is_applied=applied,
            drop=drop,
            action=action,
            answer=answer,
            change=change,
            delay_ms=milliseconds(delay),
            throttle_ms=milliseconds(throttle),
        )
        _check(effect, observe=observe)
        if action is not None:
            check_action(action, in_cluster=self.in_cluster)
        partitions = None if partition is None else _numbers(partition)
        _check_texts(
            topic=topic, group=group, transactional_id=transactional_id, resource=resource,
            client_id=client_id,
        )  # fmt: skip
        _check_functions(when=when, answer=answer, change=change)
        for each in partitions or ():
            _check_number("partition", each)
        _check_number("version", version)
        _check_counts(times, after)
        if not _is_number(probability) or not 0 < probability <= 1:
            raise ValueError(f"probability={probability!r}: write a number above 0 and up to 1")
        if not _is_whole(seed):
            raise ValueError(f"seed={seed!r}: write a whole number")
        named = None if api is None else api_named(api)
        selection = Selection(topic, partitions, group, transactional_id, resource)
        if named is not None:
            check_reach(named, version, selection, action)
        rule = FaultRule(
            self,
            effect,
            selection,
            api=named,
            version=version,
            client_id=client_id,
            when=when,
            times=times,
            after=after,
            probability=probability,
            seed=seed,
        )
        with self.changed:
            self._rules = (*self._rules, rule)
        return rule

    def remove(self, rule: FaultRule) -> None:
        """Take a rule away; one that is gone already is no error."""
        with self.changed:
            self._rules = tuple(each for each in self._rules if each is not rule)
            rule._end()

    def clear(self) -> None:
        with self.changed:
            removed, self._rules = self._rules, ()
            for each in removed:
                each._end()

    def applied(self) -> tuple[FaultRule, ...]:
        """Rules that apply to a request now."""
        return () if self.are_suspended else self.with_those_of_cluster()

    def with_those_of_cluster(self) -> tuple[FaultRule, ...]:
        """Rules of this broker, then those of its cluster."""
        return self._rules if self._of_cluster is None else self._rules + self._of_cluster._rules

    def __iter__(self) -> Iterator[FaultRule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)


def milliseconds(text: str | float) -> int:
    """A duration: "500ms", "45s", "10m", "2h", or a number of seconds."""
    if _is_number(text):
        if not 0 <= text <= DURATION_S_MAX:  # NaN is not within them either
            reason = "it is negative" if text < 0 else f"write up to {DURATION_S_MAX:.0f} seconds"
            raise ValueError(f"{text} is not a duration: {reason}")
        return round(text * 1_000)
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a duration: write it like 500ms, 45s, 10m or 2h")
    found = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-z]+)\s*", text)
    if found is None or found[2] not in _UNITS_MS:
        raise ValueError(f"{text!r} is not a duration: write it like 500ms, 45s, 10m or 2h")
    return milliseconds(float(found[1]) * _UNITS_MS[found[2]] / 1_000)


def _check_texts(**texts: object) -> None:
    for name, text in texts.items():
        if text is not None and not isinstance(text, str):
            raise ValueError(f"{name}={text!r} matches no request: it is not text")
        if text == "" and name != "client_id":
            raise ValueError(f"{name}='' matches no request: it is empty")


def _check_functions(**functions: object) -> None:
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise ValueError(f"{name}={function!r}: write a function")


def _check_switches(**switches: object) -> None:
    for name, switch in switches.items():
        if not isinstance(switch, bool):
            raise ValueError(f"{name}={switch!r}: write true or false")


def _check_number(name: str, number: object) -> None:
    if number is None:
        return
    if not _is_whole(number):
        raise ValueError(f"{name}={number!r} matches no request: write a whole number")
    if number < 0:
        raise ValueError(f"{name}={number} matches no request: it is negative")


def _check_counts(times: object, after: object) -> None:
    right_times = times is None or (_is_whole(times) and times >= 1)
    if not right_times or not _is_whole(after) or after < 0:
        raise ValueError(
            f"times={times!r}, after={after!r}: a rule hits once or more, after 0 or more matches; write"
            " whole numbers"
        )


def _is_whole(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool)


def _is_number(number: object) -> TypeGuard[float]:
    return isinstance(number, int | float) and not isinstance(number, bool)


def _numbers(partition: int | Collection[int]) -> frozenset[int]:
    numbers = frozenset(partition if isinstance(partition, Collection) else [partition])
    if not numbers:
        raise ValueError("partition=[] matches no request: name one, or leave it out")
    return numbers
