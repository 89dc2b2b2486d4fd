"""The dashboard and the alert rules name metrics and labels that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = REPOSITORY / "docs" / "METRICS.md"
"""Rendered from the source, and compared with it by a test."""
SCRAPED = {"instance", "le"}
"""Labels that Prometheus and histograms add."""
SUFFIXES = ("_bucket", "_sum", "_count")

_NAME = re.compile(r"\b(?:kafka|barnabas|process|python)_[a-z0-9_]+\b")
_SELECTOR = re.compile(r"([a-z_0-9]+)\{([^}]*)\}")
_BY = re.compile(r"by \(([a-z_, ]+)\)")
_SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}")


def printed(name: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "metrics", name], capture_output=True, text=True, check=True
    )
    return done.stdout


def exported() -> dict[str, set[str]]:
    """Labels of each metric."""
    found: dict[str, set[str]] = {}
    for line in PAGE.read_text().splitlines():
        row = re.match(r"\| `([a-z0-9_]+)` \| (counter|gauge|histogram) \| ([^|]*) \|", line)
        if row:
            labels = set(re.findall(r"`([a-z_]+)`", row[3]))
            names = [row[1] + suffix for suffix in SUFFIXES] if row[2] == "histogram" else [row[1]]
            found |= dict.fromkeys(names, labels)
    return found


def queries() -> list[tuple[str, str]]:
    """Expression, and the text that shows its labels."""
    dashboard = json.loads(printed("dashboard"))
    shown = [
        (target["expr"], target["legendFormat"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]
    for group in yaml.safe_load(printed("alerts"))["groups"]:
        shown += [(rule["expr"], rule["annotations"]["summary"]) for rule in group["rules"]]
    return shown


def test_every_metric_and_label_exists() -> None:
    known = exported()
    assert len(known) > 100
    for expression, text in queries():
        names = _NAME.findall(re.sub(r'"[^"]*"', '""', expression))
        assert names, expression
        labels = set(SCRAPED)
        for name in names:
            assert name in known, f"{name} in {expression}"
            labels |= known[name]
        for name, selector in _SELECTOR.findall(expression):
            used = set(re.findall(r"([a-z_]+)(?:=~|=|!=)", selector))
            assert used <= known[name] | SCRAPED, expression
        kept = labels
        for by in _BY.findall(expression):
            used = {label.strip() for label in by.split(",")}
            assert used <= labels, expression
            kept = used
        assert set(_SHOWN.findall(text)) <= kept, f"{text} of {expression}"


def test_counters_are_read_as_rates() -> None:
    for expression, _ in queries():
        for name in _NAME.findall(re.sub(r'"[^"]*"', '""', expression)):
            if name.endswith(("_total", "_bucket")):
                assert re.search(rf"(rate|increase)\({name}(\{{[^}}]*\}})?\[", expression), expression


def test_panels_have_places_of_their_own() -> None:
    dashboard = json.loads(printed("dashboard"))
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(printed("alerts"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_alerts_say_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert re.fullmatch(r"\d+[mh]", rule["for"])
        assert rule["annotations"]["description"].endswith(".")


@pytest.mark.parametrize("name", ["dashboard", "alerts"])
def test_what_is_printed_is_stable(name: str) -> None:
    assert printed(name) == printed(name)
