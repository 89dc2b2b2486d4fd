"""Interpretation of config changes, before anything is written.

AlterConfigs replaces all overrides of a resource; IncrementalAlterConfigs changes single keys: set, delete,
and for lists append and subtract. Both result in a full set of overrides, which is then checked as a whole.
So the two APIs cannot disagree about valid settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from barnabas.config.definitions.keys import ConfigType, Definition, Update
from barnabas.core.errors import InvalidConfig, InvalidRequest
from barnabas.protocol.config_numbers import ConfigOperation

KEYS_MAX = 1_000
"""More than any resource has; the broker checks this many at once."""

NAMED_MAX = 100
"""Keys that an error message names: a request may have a hundred thousand."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one key."""

    name: str
    operation: ConfigOperation
    value: str | None = None


def parse_changes(changes: Sequence[tuple[str, int, str | None]]) -> list[Change]:
    """Changes of a request; a key may appear once, and only a deletion has no value."""
    _refuse_too_many(len(changes))
    parsed = []
    for name, operation, value in changes:
        try:
            parsed.append(Change(name, ConfigOperation(operation), value))
        except ValueError:
            raise InvalidRequest(f"unknown operation {operation} for config key {name}") from None
    _refuse_duplicates([change.name for change in parsed])
    _refuse_nulls([c.name for c in parsed if c.value is None and c.operation is not ConfigOperation.DELETE])
    return parsed


def parse_replacement(entries: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """The full set of overrides of an AlterConfigs request."""
    _refuse_too_many(len(entries))
    _refuse_duplicates([name for name, _ in entries])
    _refuse_nulls([name for name, value in entries if value is None])
    return {name: value for name, value in entries if value is not None}


def apply_changes(keys: Definition, current: Mapping[str, str], changes: Iterable[Change]) -> dict[str, str]:
    """The overrides after `changes`."""
    result = dict(current)
    for change in changes:
        match change.operation:
            case ConfigOperation.SET:
                result[change.name] = change.value or ""
            case ConfigOperation.DELETE:
                result.pop(change.name, None)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                result[change.name] = _changed_list(keys, result, change)
    return result


def check_broker_overrides(keys: Definition, overrides: Mapping[str, str], *, all_brokers: bool) -> None:
    """Reject invalid overrides, and keys that cannot change at run time at this level.

    Apache Kafka stores unknown keys; this broker rejects a misspelt key.
    """
    updates = {name: keys.key(name).update for name in overrides}
    fixed = [name for name, update in updates.items() if update is Update.READ_ONLY]
    if fixed:
        raise InvalidRequest(f"cannot update these configs dynamically: {', '.join(fixed)}")
    of_listeners = [name for name, update in updates.items() if update is Update.PER_LISTENER]
    if unprefixed := [name for name in of_listeners if name in keys]:
        raise InvalidRequest(
            "these configs can be updated dynamically only for one listener, under listener.name.<listener>.:"
            f" {', '.join(unprefixed)}"
        )
    single = [name for name, update in updates.items() if update is Update.PER_BROKER] + of_listeners
    if single and all_brokers:
        raise InvalidRequest(
            f"cannot update these configs for all brokers, a broker id must be given: {', '.join(single)}"
        )
    try:
        keys.parse(overrides)
    except InvalidConfig as error:
        raise InvalidRequest(error.message) from None


def _changed_list(keys: Definition, current: Mapping[str, str], change: Change) -> str:
    key = keys.key(change.name)
    if key.type is not ConfigType.LIST:
        verb = "append" if change.operation is ConfigOperation.APPEND else "subtract"
        raise InvalidConfig(
            f"config value {verb} is not allowed for config key {change.name}: it is not a list"
        )
    before = _words(current.get(change.name, key.render(key.default) or ""))
    given = _words(change.value or "")
    if change.operation is ConfigOperation.APPEND:
        known = set(before)
        after = before + [word for word in given if word not in known]
    else:
        unwanted = set(given)
        after = [word for word in before if word not in unwanted]
    return ",".join(after)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _refuse_too_many(count: int) -> None:
    if count > KEYS_MAX:
        raise InvalidRequest(f"{count} config keys for one resource; none has more than {KEYS_MAX}")


def _refuse_duplicates(names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        repeated = sorted(name for name, times in Counter(names).items() if times > 1)
        raise InvalidRequest(f"duplicate config keys: {', '.join(repeated[:NAMED_MAX])}")


def _refuse_nulls(names: Sequence[str]) -> None:
    if names:
        raise InvalidRequest(f"null value not supported for: {', '.join(names[:NAMED_MAX])}")
