"""`KEY=VALUE` arguments."""

from __future__ import annotations

from collections.abc import Iterable

import click


def parse_pairs(texts: Iterable[str], hint: str) -> dict[str, str]:
    """The pairs, or a usage error that names the option; the last of several for one key wins."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{text!r} is not of the form KEY=VALUE", param_hint=hint)
        found[name.strip()] = value
    return found
