"""The checksum is that of the package, however it was loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import crc32c as package
import pytest

from barnabas.records import checksum


@pytest.mark.parametrize("size", [0, 1, 100, 70_000])
def test_it_is_the_packages(size: int) -> None:
    data = os.urandom(size)
    assert checksum.crc32c(data) == package.crc32c(data)
    assert checksum.crc32c(memoryview(data), 7) == package.crc32c(data, 7)


def test_a_package_without_the_library_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "EXTENSION_SUFFIXES", [".nothing"])
    assert checksum._load()(b"123456789") == 0xE3069283


def test_a_start_does_not_look_for_what_is_installed() -> None:
    """That takes a tenth of it."""
    look = (
        "import barnabas.node.broker, barnabas.node.main, sys; sys.exit('importlib.metadata' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0
