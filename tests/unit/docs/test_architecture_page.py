"""Names in docs/ARCHITECTURE.md: each module exists, and every package is on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.named_modules import SOURCE, is_module

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([a-z_]+(?:\.\w+)*)`", PAGE)))
DRAWN = sorted(set(re.findall(r"\b[a-z_]+\.[a-z_]+\b", "".join(re.findall(r"```.*?```", PAGE, re.DOTALL)))))
NO_MODULES = {
    *("asyncio", "socket", "ssl", "pyspark", "sendfile", "multi"),
    *("__consumer_offsets", "__transaction_state", "partition.metadata"),
    *("flush.messages", "flush.ms", "transaction.version", "zookeeper.connect"),
    *("fetch.min.bytes", "min.insync.replicas", "pyproject.toml"),
}
"""Names in backticks that are no modules: other libraries, topics, files, settings."""


@pytest.mark.parametrize("name", [*NAMED, *DRAWN])
def test_what_is_named_exists(name: str) -> None:
    assert name in NO_MODULES or is_module(name), f"there is no {name}"


def test_every_package_is_named() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/*/__init__.py")} | {"pyspark_barnabas"}
    assert len(packages) > 10
    assert {name for name in packages if f"`{name}`" not in PAGE} == set()
