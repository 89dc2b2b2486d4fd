"""Settings of a subscription to the metrics of clients (KIP-714).

A subscription names prefixes of metrics, an interval, and the clients that push them. A client must match all
patterns of `match`, each `<attribute>=<regular expression>`. Kafka's patterns are Java's; these are RE2's,
which cannot be made to backtrack. A subscription whose last setting is deleted ceases to exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.config.definitions.keys import ConfigType, Definition, Key
from barnabas.config.dynamic.layers import ConfigEntry, Synonym, config_entry
from barnabas.core.errors import InvalidConfig, InvalidRequest
from barnabas.protocol.config_numbers import ConfigSource

METRICS: Final = "metrics"
INTERVAL: Final = "interval.ms"
MATCH: Final = "match"

INTERVAL_DEFAULT_MS: Final = 300_000
INTERVAL_MS: Final = (100, 3_600_000)
PATTERN_LENGTH_MAX: Final = 1_024
PATTERN_MEMORY_BYTES_MAX: Final = 256 * 1024

CLIENT_METRICS_KEYS = Definition(
    (
        Key(METRICS, ConfigType.LIST, (), doc="Prefixes of the names of metrics; `*` is all of them."),
        Key(
            INTERVAL,
            ConfigType.INT,
            INTERVAL_DEFAULT_MS,
            doc="Interval of a client's pushes, in milliseconds.",
        ),
        Key(
            MATCH,
            ConfigType.LIST,
            (),
            doc="Patterns `<attribute>=<regular expression>` that a client must match, all of them.",
        ),
    )
)

ATTRIBUTES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""Attributes of a client that `match` may name."""


def check_client_metrics(name: str, overrides: Mapping[str, str]) -> None:
    """Raise Kafka's error for settings that it refuses."""
    check_subscription_name(name)
    unknown = [each for each in overrides if each not in CLIENT_METRICS_KEYS]
    if unknown:
        raise InvalidRequest(f"Unknown client metrics configuration: {unknown[0]}")
    values = CLIENT_METRICS_KEYS.parse(overrides)
    least, most = INTERVAL_MS
    if INTERVAL in values and not least <= values[INTERVAL] <= most:
        raise InvalidRequest(
            f"Invalid value {values[INTERVAL]} for {INTERVAL}, interval must be between {least} and {most}"
            " (1 hour)"
        )
    parse_match(values.get(MATCH, ()))


def check_subscription_name(name: str) -> None:
    if not name:
        raise InvalidRequest("the name of a client metrics subscription must not be empty")


def parse_match(patterns: Sequence[str]) -> dict[str, Any]:
    """Compiled pattern of each attribute; INVALID_CONFIG names the pattern at fault."""
    parsed = {}
    for pattern in patterns:
        attribute, equals, expression = (part.strip() for part in pattern.partition("="))
        if not equals or not expression or "=" in expression or attribute not in ATTRIBUTES:
            raise InvalidConfig(f"Illegal client matching pattern: {pattern}")
        parsed[attribute] = _compiled(expression)
    return parsed


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """All keys of a subscription, each with the source of its value."""
    entries = []
    for name, key in CLIENT_METRICS_KEYS.items():
        rendered = key.render(key.default) or ""
        synonyms = [Synonym(name, rendered, ConfigSource.DEFAULT)]
        if name in overrides:
            synonyms = [Synonym(name, overrides[name], ConfigSource.CLIENT_METRICS), *synonyms]
        entries.append(config_entry(key, synonyms[0].value, synonyms, read_only=False))
    return entries


def _compiled(expression: str) -> Any:
    import re2  # noqa: PLC0415 - most brokers have no such subscription

    if len(expression) > PATTERN_LENGTH_MAX:
        raise InvalidConfig(f"a client matching pattern has at most {PATTERN_LENGTH_MAX} characters")
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        raise InvalidConfig(
            f"Illegal client matching pattern: {expression}: {error.args[0].decode()}"
        ) from None
