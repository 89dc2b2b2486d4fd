"""Work of `make demo` beside Spark; its pipelines are those of the examples."""

from __future__ import annotations

import importlib.util
import re
import socket
import threading
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from rich.console import Console

from barnabas.pipelines.state.progress import Progress
from tests.support.broker import barnabas_broker
from tests.support.pages import blocks
from tests.support.spark import require_spark
from tests.support.waiting import PATIENCE_S

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


def test_the_numbers_at_the_end_add_up(tmp_path: Path) -> None:
    """Both pipelines are given the time to read what was written; what they read is what was counted."""
    module = demo()
    with barnabas_broker(tmp_path) as broker:
        stream = module.Clickstream(broker.bootstrap)
        stream.produced, stream.bad = 100, 2
        stream.windows[("/", "10:00")] = 90
        report = Progress("clean-clicks", 1, 100, 1.0, 1, 2, 0, {"clicks": {"0": 100}})
        latest = {"clean-clicks": report, "count-pages": replace(report, pipeline="count-pages")}
        running = [SimpleNamespace(failure=None), SimpleNamespace(failure=None)]
        counting = threading.Timer(0.3, lambda: stream.windows.update({("/shop", "10:00"): 8}))
        counting.start()
        assert module.settle(stream, latest, running)
        assert sum(stream.clicks().values()) == 98
        assert module.summary(stream, 98, 3, is_complete=True).startswith(
            "100 clicks were produced, 2 of them bad; 98 clean ones lie in 3 files, 98 were counted"
        )
        running[0].failure = "broken"
        assert not module.settle(stream, {}, running)


def test_the_chart_is_the_one_that_the_readme_shows() -> None:
    """The chart, drawn with the numbers of README.md."""
    module = demo()
    shown = next(each.text for each in blocks("README.md", "") if "clicks per page" in each.text)
    stream = module.Clickstream("nowhere:1")
    for page, clicks in re.findall(r"^ (/\w*) .* ([\d,]+)$", shown, re.MULTILINE):
        stream.windows[(page, "10:00")] = number(clicks)
    latest = {
        name: Progress(name, int(batch), int(records), 1.0, int(ms), number(bad), 0, {})
        for name, batch, records, ms, bad in re.findall(
            r"^ ([\w-]+) +batch (\d+): (\d+) records in (\d+) ms, lag 0 +(\d+) bad$", shown, re.MULTILINE
        )
    }
    ((produced, bad),) = re.findall(r"^ produced +([\d,]+) events, (\d+) of them bad$", shown, re.MULTILINE)
    stream.produced, stream.bad = number(produced), number(bad)
    (when,) = re.findall(r"\((.* left)\)", shown)
    drawn = Console(width=module.TABLE_WIDTH, file=StringIO(), record=True)
    drawn.print(module.chart(stream, latest, when))
    lines = [line.rstrip() for line in drawn.export_text().splitlines()]
    assert lines == [line.rstrip() for line in shown.splitlines()]


def test_a_pipe_gets_lines_while_a_terminal_has_the_chart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = demo()
    monkeypatch.setattr(module, "AGAIN_S", 0.4)
    stream = module.Clickstream("nowhere:1")
    stream.produced = 1_234
    stream.windows[("/", "10:00")] = 1_230
    module.show(Console(file=StringIO()), stream, {}, [], 1.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    for line in lines:
        assert re.fullmatch(r"demo: 1,234 clicks produced, 1,230 counted; [01] s left", line)


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_it_opens_on_the_console(tmp_path: Path) -> None:
    module = demo()
    with barnabas_broker(tmp_path) as broker:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            module.PAGE_PORT = taken.getsockname()[1]
            with module.page(broker.bootstrap) as address:
                assert not address.endswith(f":{module.PAGE_PORT}"), "a taken port is left alone"
                found = httpx.get(f"{address}/api/overview", timeout=PATIENCE_S, trust_env=False).json()
                assert len(found["brokers"]) == 1
        with module.page(broker.bootstrap) as address:
            assert address == f"http://127.0.0.1:{module.PAGE_PORT}"
        with pytest.raises(httpx.TransportError):
            httpx.get(address, timeout=PATIENCE_S, trust_env=False)
    with module.page("nowhere:port") as address:
        assert address is None


def test_its_pipelines_are_valid(tmp_path: Path) -> None:
    module = demo()
    for document in (module.clean(tmp_path), module.COUNT):
        assert module.load_document(document).name == document["name"]
