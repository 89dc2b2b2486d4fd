"""docs/ARCHITECTURE.md is a map: what it names is there, and every package is on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCE = REPOSITORY / "src"
PAGE = (REPOSITORY / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([a-z_]+(?:\.\w+)*)`", PAGE)))
DRAWN = sorted(set(re.findall(r"\b[a-z_]+\.[a-z_]+\b", "".join(re.findall(r"```.*?```", PAGE, re.DOTALL)))))
NO_PLACES = {
    *("asyncio", "socket", "ssl", "pyspark", "sendfile", "multi"),
    *("__consumer_offsets", "__transaction_state", "partition.metadata", "lease_expires_ms"),
    *("flush.messages", "flush.ms", "transaction.version", "zookeeper.connect"),
}
"""What belongs to others; topics, files and attributes; settings."""


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


MODULES = [dotted(path) for path in SOURCE.rglob("*.py")]
PLACES = {*MODULES, *(name.removesuffix(".__init__") for name in MODULES)}


def is_a_place(name: str) -> bool:
    """A module, or something in one, under the end of its dotted name."""
    if any(place == name or place.endswith(f".{name}") for place in PLACES):
        return True
    module, _, inside = name.rpartition(".")
    found = [place for place in MODULES if module and place.endswith(f".{module}")]
    texts = [(SOURCE / (place.replace(".", "/") + ".py")).read_text(encoding="utf-8") for place in found]
    return any(re.search(rf"^class {inside}\b", text, re.MULTILINE) for text in texts)


@pytest.mark.parametrize("name", [*NAMED, *DRAWN])
def test_what_is_named_exists(name: str) -> None:
    assert name in NO_PLACES or is_a_place(name), f"there is no {name}"


def test_every_package_is_named() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/*/__init__.py")} | {"pyspark_barnabas"}
    assert len(packages) > 10
    assert {name for name in packages if f"`{name}`" not in PAGE} == set()
