"""References to secrets: `${env:NAME}` and `${file:path:key}`.

A configuration is stored, shown and logged with its references. The process that connects resolves them when
it connects, and passes the values nowhere else. A file is a properties file (Connect's FileConfigProvider)
or, without a key, the secret itself.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from barnabas.config.properties import read_properties
from barnabas.core.files import read_regular_file

FILE_BYTES_MAX: Final = 1 << 20

Value: TypeAlias = Any
"""Text, numbers, booleans, null, lists and mappings of them."""

REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")

HIDDEN = "[hidden]"


class UnresolvedSecret(Exception):
    """A reference that cannot be resolved; the message names the reference and never a value."""


def has_reference(value: Value) -> bool:
    return isinstance(value, str) and REFERENCE.search(value) is not None


def resolve(value: Value, environment: Mapping[str, str] | None = None) -> Value:
    """Replace every reference in `value`, in lists and mappings too."""
    if isinstance(value, str):
        known = os.environ if environment is None else environment
        return REFERENCE.sub(lambda found: _look_up(found.group(1), found.group(2), known), value)
    if isinstance(value, Mapping):
        return {name: resolve(each, environment) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve(each, environment) for each in value]
    return value


def redact(text: str, values: Mapping[str, Value]) -> str:
    """Remove the secrets that the references in `values` name from `text`, such as a stack trace."""
    for value in values.values():
        if isinstance(value, Mapping):
            text = redact(text, value)
        elif has_reference(value):
            try:
                resolved = str(resolve(value))
            except UnresolvedSecret:
                continue
            if len(resolved) >= 4:
                text = text.replace(resolved, HIDDEN)
    return text


def _look_up(kind: str, rest: str, environment: Mapping[str, str]) -> str:
    if kind == "env":
        if rest not in environment:
            raise UnresolvedSecret(f"${{env:{rest}}}: there is no such environment variable")
        return environment[rest]
    path, _, key = rest.partition(":")
    try:
        data = read_regular_file(path, FILE_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        raise UnresolvedSecret(f"${{file:{rest}}}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UnresolvedSecret(f"${{file:{rest}}}: the file is not text in UTF-8") from None
    if len(data) > FILE_BYTES_MAX:
        raise UnresolvedSecret(f"${{file:{rest}}}: the file has more than {FILE_BYTES_MAX} bytes")
    if not key:
        return text.rstrip("\n")
    try:
        properties = read_properties(text)
    except ValueError:
        raise UnresolvedSecret(f"${{file:{rest}}}: the file is not one of properties") from None
    if key not in properties:
        raise UnresolvedSecret(f"${{file:{rest}}}: the file has no {key!r}")
    return properties[key]
