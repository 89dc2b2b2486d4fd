from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.storage.support import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(str(tmp_path))
