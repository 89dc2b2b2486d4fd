"""Sources of settings: keywords over a dict over the environment over a file over the defaults.

A key is written as Kafka writes it (`linger.ms`), or with `_` for each dot where a dot cannot stand: in
keywords (`linger_ms=5`) and in the environment (`BARNABAS_LINGER_MS=5`). Values are text, or what the text
means. An unknown key of a dict, a keyword or a file raises INVALID_CONFIG and names similar keys. The
environment belongs to other programs too, so unknown variables there are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from barnabas.client.config.foreign_keys import known_key
from barnabas.config.definitions.keys import ConfigType, Definition, Key
from barnabas.config.properties import read_properties
from barnabas.core.errors import InvalidConfig
from barnabas.core.files import read_regular_file

ENVIRONMENT_PREFIX: Final = "BARNABAS_"
FILE_BYTES_MAX: Final = 1024 * 1024


def gather(
    definition: Definition,
    properties: Mapping[str, Any] | None = None,
    *,
    file: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    keywords: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Values of all keys: those of the sources, then the defaults."""
    given: dict[str, Any] = {}
    if file is not None:
        given |= from_file(definition, file)
    if environment is not None:
        given |= from_environment(definition, environment)
    given |= {known_key(definition, name).name: value for name, value in (properties or {}).items()}
    given |= from_keywords(definition, keywords or {})
    parsed = {name: _value(definition[name], value) for name, value in given.items() if value is not None}
    return definition.defaults() | parsed


def from_file(definition: Definition, file: str | Path) -> dict[str, str]:
    """Settings of a properties file. Its keys must be of this client."""
    try:
        text = read_regular_file(Path(file), FILE_BYTES_MAX).decode()
        found = read_properties(text)
    except OSError as error:
        raise InvalidConfig(f"the client properties in {file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidConfig(f"the client properties in {file} are not valid: {error}") from None
    return {known_key(definition, name).name: text for name, text in found.items()}


def from_environment(definition: Definition, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Settings of `BARNABAS_…` variables."""
    names = {variable_of(name): name for name in definition}
    return {names[variable]: text for variable, text in environment.items() if variable in names}


def variable_of(name: str) -> str:
    """Environment variable of a key: `linger.ms` is `BARNABAS_LINGER_MS`."""
    return ENVIRONMENT_PREFIX + name.replace(".", "_").upper()


def from_keywords(definition: Definition, keywords: Mapping[str, Any]) -> dict[str, Any]:
    names = {name.replace(".", "_"): name for name in definition}
    return {names.get(word) or _unknown(definition, word): value for word, value in keywords.items()}


def _unknown(definition: Definition, word: str) -> str:
    """Raise INVALID_CONFIG for a keyword, with suggestions."""
    return known_key(definition, word.replace("_", ".")).name


def _value(key: Key, value: Any) -> Any:
    """A checked value, from text or from a Python value of the right kind."""
    if isinstance(value, str):
        return key.parse(value)
    if callable(value):
        return value
    if isinstance(value, bool):
        return key.parse("true" if value else "false")
    if isinstance(value, int | float):
        return key.parse(str(value))
    if isinstance(value, Iterable) and key.type is ConfigType.LIST:
        return key.parse(",".join(map(str, value)))
    raise InvalidConfig(f"invalid value of type {type(value).__name__} for {key.name}")
