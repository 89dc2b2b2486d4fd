"""Overrides of entities with free names: groups, and subscriptions to client metrics.

Any name may have settings. An entity without settings is not kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from barnabas.config.definitions.keys import Definition
from barnabas.config.dynamic.layers import ConfigEntry
from barnabas.core.errors import InvalidConfig

logger = logging.getLogger(__name__)

Check = Callable[[str, Mapping[str, str]], None]
Describe = Callable[[Mapping[str, str]], list[ConfigEntry]]
CheckName = Callable[[str], None]
Listener = Callable[[str, Mapping[str, str]], None]


class NamedOverrides:
    """All entities of one type, with their settings."""

    def __init__(
        self,
        store_type: str,
        noun: str,
        keys: Definition,
        *,
        check_name: CheckName,
        check: Check,
        describe: Describe,
    ) -> None:
        self.store_type: Final = store_type
        self.keys: Final = keys
        self.check_name: Final = check_name
        self.check: Final = check
        self._noun = noun
        self._describe = describe
        self._overrides: dict[str, dict[str, str]] = {}
        self._listeners: list[Listener] = []

    def __iter__(self) -> Iterator[str]:
        return iter(self._overrides)

    def get(self, name: str) -> Mapping[str, str]:
        return self._overrides.get(name, {})

    def on_change(self, listener: Listener) -> None:
        """Call `listener` with each entity and its settings, now and after each change."""
        self._listeners.append(listener)
        for name, overrides in self._overrides.items():
            listener(name, overrides)

    def describe(self, name: str) -> list[ConfigEntry]:
        self.check_name(name)
        return self._describe(self.get(name))

    def put(self, name: str, overrides: Mapping[str, str]) -> None:
        if overrides == self.get(name):
            return  # a notification also comes for changes of this broker
        if overrides:
            self._overrides[name] = dict(overrides)
        else:
            self._overrides.pop(name, None)
        for listener in self._listeners:
            listener(name, self.get(name))

    def put_stored(self, name: str, stored: Mapping[str, str]) -> None:
        """Put what the store has; overrides that this version does not know have no effect."""
        self.put(name, self.usable(name, stored))

    def usable(self, name: str, stored: Mapping[str, str]) -> dict[str, str]:
        return usable(self.keys, stored, f"{self._noun} {name}")

    def names(self) -> Sequence[str]:
        return sorted(self._overrides)


def usable(keys: Definition, stored: Mapping[str, str], whose: str) -> dict[str, str]:
    """The stored overrides that this version understands."""
    found = {}
    for name, text in stored.items():
        try:
            keys.key(name).parse(text)
        except InvalidConfig as error:
            logger.warning("%s: override ignored: %s", whose, error.message)
        else:
            found[name] = text
    return found
