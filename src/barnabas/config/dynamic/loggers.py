"""Log levels as dynamic settings of a broker (KIP-412): described and changed at run time, never stored.

The names are those of the broker's loggers, which are its modules, the audit and state-change
loggers, and `root`. Levels have
Kafka's names; Python has no TRACE, which means DEBUG here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from barnabas.config.definitions.keys import ConfigType
from barnabas.config.dynamic.changes import Change
from barnabas.config.dynamic.layers import ConfigEntry
from barnabas.core.errors import InvalidConfig, InvalidRequest
from barnabas.core.reporting.state_changes import STATE_CHANGES
from barnabas.protocol.config_numbers import ConfigOperation, ConfigSource

ROOT = "root"
AUDIT = "kafka.authorizer.logger"
"""Logger of authorization decisions. It has Apache Kafka's name, so Kafka's settings for it mean the same
here."""

_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES = {level: name for name, level in _LEVELS.items() if name != "TRACE"}


def describe_loggers() -> list[ConfigEntry]:
    """The level in force of every logger."""
    return [
        ConfigEntry(
            name=name,
            value=_level_name(logger.getEffectiveLevel()),
            source=ConfigSource.DYNAMIC_BROKER_LOGGER,
            type=ConfigType.STRING,
            read_only=False,
            is_sensitive=False,
            synonyms=(),
            documentation="",
        )
        for name, logger in sorted(_loggers().items())
    ]


def change_levels(changes: Iterable[Change], *, validate_only: bool) -> None:
    """Set levels, or delete them, which makes a logger follow its parent. All changes take effect, or
    none."""
    loggers = _loggers()
    levels = {change.name: _checked_level(change, loggers) for change in changes}
    if not validate_only:
        for name, level in levels.items():
            loggers[name].setLevel(level)


def _checked_level(change: Change, loggers: dict[str, logging.Logger]) -> int:
    if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise InvalidRequest(f"{change.operation.name} is not allowed for a logger")
    if change.name not in loggers:
        raise InvalidConfig(f"logger {change.name} does not exist")
    if change.operation is ConfigOperation.DELETE:
        if change.name == ROOT:
            raise InvalidRequest("removing the log level of the root logger is not allowed")
        return logging.NOTSET
    level = _LEVELS.get(change.value or "")
    if level is None:
        raise InvalidConfig(f"log level {change.value!r} is not one of {', '.join(_LEVELS)}")
    return level


def _loggers() -> dict[str, logging.Logger]:
    ours = {
        name: logger
        for name, logger in logging.root.manager.loggerDict.items()
        if name.partition(".")[0] == "barnabas" and isinstance(logger, logging.Logger)
    }
    named = {name: logging.getLogger(name) for name in (AUDIT, STATE_CHANGES)}
    return {ROOT: logging.getLogger(), **named, **ours}


def _level_name(level: int) -> str:
    return next((name for bound, name in sorted(_NAMES.items()) if level <= bound), "FATAL")
