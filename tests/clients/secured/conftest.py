from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.secured.broker import Secured, secured_broker


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as found:
        yield found
