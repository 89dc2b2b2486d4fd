"""Command that installs a missing optional dependency, for the origin of this installation.

An extra (`spark`, `zookeeper` …) comes from the same source as the package: a clone, a wheel, or an index.
The installer has recorded that source in `direct_url.json` (PEP 610).
"""

from __future__ import annotations

import json
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "barnabas"


def install_command(*extras: str) -> str:
    """The command that adds the extras to this installation."""
    wanted = f"[{','.join(extras)}]"
    origin = _origin()
    if origin is None:
        return f"pip install '{DISTRIBUTION}{wanted}'"
    url = str(origin.get("url", ""))
    if isinstance(kind := origin.get("dir_info"), dict):
        editable = "-e " if kind.get("editable") else ""
        return f"pip install {editable}'{unquote(urlsplit(url).path)}{wanted}'"
    return f"pip install '{DISTRIBUTION}{wanted} @ {url}'"


def _origin() -> dict[str, object] | None:
    """None for a package from an index, and for a source tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - slow, and seldom asked

    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    return None if text is None else dict(json.loads(text))
