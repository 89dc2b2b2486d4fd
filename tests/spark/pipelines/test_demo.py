"""Work of `make demo` beside Spark; its pipelines are those of the examples."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

from tests.support.broker import barnabas_broker
from tests.support.spark import require_spark

DEMO = Path(__file__).parents[3] / "examples" / "demo.py"


def demo() -> Any:
    require_spark()
    found = importlib.util.spec_from_file_location("demo", DEMO)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_clickstream_flows_until_it_is_stopped(tmp_path: Path) -> None:
    with barnabas_broker(tmp_path) as broker:
        stream = demo().Clickstream(broker.bootstrap)
        stream.start()
        deadline = time.monotonic() + 60
        while stream.produced < 100:
            assert stream.is_alive(), "it ended by itself"
            assert time.monotonic() < deadline, "no clicks came"
            time.sleep(0.05)
        stream.stop()
        assert not stream.is_alive()


def test_its_pipelines_are_valid(tmp_path: Path) -> None:
    module = demo()
    for document in (module.clean(tmp_path), module.COUNT):
        assert module.load_document(document).name == document["name"]
