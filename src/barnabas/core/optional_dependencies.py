"""Command that installs a missing optional dependency, for the origin of this installation.

An extra (`spark`, `zookeeper` …) comes from the same source as the package: a clone, a wheel, or an index.
The installer has recorded that source in `direct_url.json` (PEP 610).

Installing an extra of a clone builds the package again, and that compiles the hot modules for a minute or
two. So the command for a clone names the missing packages themselves, as the installed metadata lists them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution

DISTRIBUTION = "barnabas"
SOURCE = Path(__file__).resolve().parents[3]
"""The clone, for a source tree that is not installed."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)([^;]*)(?:;(.*))?")


class MissingExtra(ImportError):
    """A package of an optional extra is not installed."""


def install_command(*extras: str) -> str:
    """The command that adds the extras to this installation."""
    wanted = f"[{','.join(extras)}]"
    installed = _installed()
    if installed is None:
        return f"pip install '{SOURCE}{wanted}'"
    text = installed.read_text("direct_url.json")
    if text is None:
        return f"pip install '{DISTRIBUTION}{wanted}'"
    origin = dict(json.loads(text))
    url = str(origin.get("url", ""))
    if isinstance(kind := origin.get("dir_info"), dict):
        path = unquote(urlsplit(url).path)
        if kind.get("editable"):
            return f"pip install -e '{path}{wanted}'"
        packages = missing_packages(installed.requires or (), extras)
        return f"pip install {' '.join(packages)}" if packages else f"pip install '{path}{wanted}'"
    return f"pip install '{DISTRIBUTION}{wanted} @ {url}'"


def missing_packages(requires: list[str] | tuple[str, ...], extras: tuple[str, ...]) -> list[str]:
    """Requirements of the extras that are not installed, quoted for a shell."""
    found = []
    for each in requires:
        parts = _REQUIREMENT.fullmatch(each)
        if parts is None or not _is_of(parts[3] or "", extras) or _is_present(parts[1]):
            continue
        found.append(f"'{parts[1]}{parts[2].strip()}'")
    return found


def _is_of(marker: str, extras: tuple[str, ...]) -> bool:
    return any(re.search(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]", marker) for extra in extras)


def _is_present(package: str) -> bool:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow, and seldom asked

    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _installed() -> Distribution | None:
    """None for a source tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415

    try:
        return distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return None
