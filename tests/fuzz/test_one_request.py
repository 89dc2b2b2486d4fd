"""One request of many elements does not make a broker grow, for any response."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tests.fuzz.judges.memory import GROWTH_BYTES_MAX
from tests.fuzz.world import World
from tests.support import hostile

CREATIONS = 90_000


@pytest.mark.timeout(300)
def test_acls_that_are_all_refused_keep_no_memory(tmp_path: Path) -> None:
    creations = [AclCreation(resource_name=f"r{number}", principal="nobody") for number in range(CREATIONS)]
    frame = hostile.frame_of(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=creations))
    world = World(tmp_path)
    world.start()
    try:
        with world.connect("admin", 120.0) as admin:
            before_bytes = world.resident_bytes()
            admin.send(frame)
            assert len(admin.one_answer()) > CREATIONS
            assert world.resident_bytes() - before_bytes < GROWTH_BYTES_MAX
    finally:
        world.kill()
