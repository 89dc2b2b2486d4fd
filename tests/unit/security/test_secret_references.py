from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.security.identity.secret_references import UnresolvedSecret, redact, resolve


def test_references_are_resolved_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("user=ada\npassword = s3cret\n")
    (tmp_path / "whole").write_text("token\n")
    value = {
        "a": "${env:X}/${env:Y}",
        "b": [f"${{file:{tmp_path}/keys:password}}"],
        "c": f"${{file:{tmp_path}/whole}}",
        "d": 1,
    }
    assert resolve(value, {"X": "x", "Y": "y"}) == {"a": "x/y", "b": ["s3cret"], "c": "token", "d": 1}


@pytest.mark.parametrize("reference", ["${env:NOWHERE}", "${file:/nonexistent:key}"])
def test_a_reference_that_leads_nowhere_is_named(reference: str) -> None:
    with pytest.raises(UnresolvedSecret, match=reference.split(":")[1].strip("}")):
        resolve(reference, {})


def test_what_is_no_file_of_secrets_is_refused(tmp_path: Path) -> None:
    """A pipe has no writer: a read would wait forever. A device has no end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * ((1 << 20) + 1))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path / "large", tmp_path / "binary"):
        with pytest.raises(UnresolvedSecret):
            resolve(f"${{file:{path}}}", {})


def test_a_file_without_the_key_is_told_without_its_content(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("password=s3cret\n")
    with pytest.raises(UnresolvedSecret) as caught:
        resolve(f"${{file:{tmp_path}/keys:user}}", {})
    assert "s3cret" not in str(caught.value)


def test_resolved_secrets_are_taken_out_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter22")
    text = redact("FATAL: password hunter22 is wrong", {"password": "${env:PGPASSWORD}"})
    assert text == "FATAL: password [hidden] is wrong"


def test_a_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    """A referenced password equals the same password in a client's properties."""
    file = tmp_path / "client.properties"
    file.write_text("# a comment = here\npassword = back\\\\slash\\:\\u00e9 \\\n  and on\nuser: alice\n")
    assert resolve(f"${{file:{file}:password}}") == "back\\slash:é and on"
    assert resolve(f"${{file:{file}:user}}") == "alice"


def test_a_file_that_is_not_one_of_properties_is_told_without_its_content(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("password=secret\\uzzzz\n")
    with pytest.raises(UnresolvedSecret, match="not one of properties") as refused:
        resolve(f"${{file:{file}:password}}")
    assert "secret" not in str(refused.value)
