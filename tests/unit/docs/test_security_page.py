"""Tables and tests in docs/SECURITY.md: rendered from the code, and existing."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.manual_time import ManualClock
from tests.unit.docs.test_features_page import functions_of

from barnabas.client.security.settings import OPTIONS
from barnabas.config.definitions.lookup import broker_key
from barnabas.config.dynamic.loggers import AUDIT
from barnabas.security.acl.audit import Audit
from barnabas.security.identity.principal import KafkaPrincipal

HTTP_OPTIONS = {"http.user", "http.password", "http.token"}
REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs" / "SECURITY.md").read_text(encoding="utf-8")


def test_the_table_of_rights_is_rendered_from_the_code() -> None:
    command = [sys.executable, "tools/render_security.py", "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "proof", sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE))), ids="::".join
)
def test_a_test_that_is_named_exists(proof: tuple[str, str]) -> None:
    path, name = proof
    assert name in functions_of(path), f"{path} has no {name}"


@pytest.mark.parametrize("page", ["SECURITY.md", "TLS.md"])
def test_every_setting_of_a_block_exists(page: str) -> None:
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    lines = "".join(re.findall(r"^```properties\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)).splitlines()
    assert len(lines) > 5
    for line in lines:
        name = line.partition("=")[0]
        if name not in OPTIONS | HTTP_OPTIONS:
            broker_key(name)  # raises for an unknown one


@pytest.mark.parametrize("line", re.findall(r'^(\{"decision".*)$', PAGE, re.MULTILINE))
def test_a_line_of_the_audit_log_is_as_the_log_writes_it(line: str, caplog: pytest.LogCaptureFixture) -> None:
    shown = json.loads(line)
    logging.getLogger(AUDIT).propagate = True
    with caplog.at_level(logging.DEBUG, AUDIT):
        Audit(ManualClock())._write(
            shown["decision"] == "allowed", KafkaPrincipal.parse(shown["principal"]), shown["host"],
            shown["operation"], shown["resource_type"], shown["resource"], shown["rule"],
        )  # fmt: skip
    (written,) = caplog.messages
    shown.pop("left_out", None)
    assert written == json.dumps(shown)
