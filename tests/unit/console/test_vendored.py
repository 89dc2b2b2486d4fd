"""Vendored files are what their lists say, and nothing else is there."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import barnabas.console
from barnabas.console.web.assets import NAMES, assets

VENDOR = Path(barnabas.console.__file__).parent / "static" / "vendor"
AXE = Path(__file__).resolve().parents[2] / "support" / "axe"


def test_each_vendored_file_has_its_digest() -> None:
    row = re.compile(r"^\| (\S+) \| \S+ \| ([0-9a-f]{64}) \|$", re.MULTILINE)
    listed = dict(row.findall((VENDOR / "SOURCES.md").read_text()))
    here = {path.name for path in VENDOR.iterdir() if path.suffix == ".js"}
    assert set(listed) == here
    for name, digest in listed.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest
    assert "Zero-Clause BSD" in (VENDOR / "LICENSE.htmx").read_text()


def test_the_file_for_tests_has_its_digest() -> None:
    digest = hashlib.sha256((AXE / "axe.min.js").read_bytes()).hexdigest()
    assert digest in (AXE / "SOURCES.md").read_text()
    assert "Mozilla Public License" in (AXE / "LICENSE").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_assets_ask_for_nothing_elsewhere(name: str) -> None:
    body = assets()[name].body.decode()
    if name.endswith(".css"):
        assert "url(" not in body
        assert "@import" not in body
    if name == "console.js":
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|new Function|https?://", body)
