"""Configuration of a pipeline or connector as JSON that people edit, without its secrets.

A Connect worker answers with passwords in the clear. The console shows a mark in their place, and puts them
back where the mark is still there when the configuration returns.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from barnabas.console.web.context import Refused

HIDDEN: Final = "(hidden)"
SPEC: Final = "pipeline.spec"
_SECRET: Final = re.compile(
    r"password|passwd|secret|token|jaas\.config|private\.?key|credential", re.IGNORECASE
)
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")


def is_secret(name: str, value: object) -> bool:
    """A reference, such as `${env:NAME}`, is none: it says where the secret is."""
    return bool(_SECRET.search(name)) and not _REFERENCE.search(str(value))


def without_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: HIDDEN if is_secret(name, value) else value for name, value in config.items()}


def editable(config: Mapping[str, Any]) -> str:
    """The configuration as a text; a spec within it as JSON of its own."""
    shown = without_secrets(config)
    if isinstance(shown.get(SPEC), str):
        with contextlib.suppress(ValueError, RecursionError):  # else it is the text that it is
            shown[SPEC] = json.loads(shown[SPEC])
    return json.dumps(shown, indent=2, ensure_ascii=False)


def parsed(text: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that was written, with the secrets that were hidden in it."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the configuration is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refused("a configuration is an object of JSON: names and their values")
    for name, value in found.items():
        if value == HIDDEN:
            if name not in known:
                raise Refused(f"{name} has the mark {HIDDEN}, and there was no such secret before")
            found[name] = known[name]
        elif not isinstance(value, str | None):
            found[name] = json.dumps(value)  # Connect's configurations are texts
    return found
