from __future__ import annotations

import pytest

from tests.peers.kafka import require_kafka


@pytest.fixture(autouse=True)
def _kafka_jars() -> None:
    require_kafka()
