"""HTTP interfaces and the inspection socket answer odd values, without a fault of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fuzz import odd_values
from tests.fuzz.http_edges import services
from tests.fuzz.sweep import over_odd_values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]


def test_odd_values_are_refused_or_served(tmp_path: Path) -> None:
    asked = set()
    for opened in services(tmp_path / "services"):
        with opened as service:
            for measured in over_odd_values(service):
                asked.add(service.name)
                assert not measured.fault, f"{measured.name}: {measured.fault}"
            if service.name == "control":
                (inspection,) = service.home.rglob("inspection.sock")
                for question in odd_values.to_inspection():
                    answer = json.loads(odd_values.ask_inspection(inspection, question))
                    assert answer.get("error") != -1, f"{question}: {answer}"
                assert "Traceback" not in service.log_text()
    assert asked == {"control", "pipelines", "mcp"}
