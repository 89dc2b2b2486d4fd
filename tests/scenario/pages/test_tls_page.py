"""docs/TLS.md: its settings and commands, with an authority and a broker certificate of docs/SECURITY.md."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.pages import REPOSITORY, Shell, blocks
from tests.support.ports import free_ports
from tests.support.process import ServerProcess
from tests.support.waiting import PATIENCE_S

PASSWORD = "of-the-store"


def test_a_client_with_a_certificate_is_the_user_that_the_page_names(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    shell = Shell(tmp_path)
    inside = free_ports(2)
    (authority,) = (each for each in blocks("docs/SECURITY.md", "sh") if "my-authority" in each.text)
    shell.run(authority.text)
    shell.run(f"openssl pkcs12 -export -in broker.pem -out broker.p12 -passout pass:{PASSWORD}")
    broker, client = blocks("docs/TLS.md", "properties")
    settings = (
        broker.text.replace("/etc/barnabas/clients-ca.pem", "ca.pem").replace("/etc/barnabas/", "")
        .replace("=…", f"={PASSWORD}").replace("//:9093", f"//localhost:{inside + 1}")
        .replace(":9092", f":{inside}")
    )  # fmt: skip
    (tmp_path / "broker.properties").write_text(settings)
    (tmp_path / "alice.properties").write_text(client.text)
    (commands,) = blocks("docs/TLS.md", "sh")
    shell.run(commands.text)
    process = ServerProcess(
        ["barnabas", "start", "--config", "broker.properties", "--data-dir", "data",
         "--set", "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
         "--set", "super.users=User:ANONYMOUS"],
        is_ready=lambda line: line.startswith("barnabas ready"),
        environment=shell.environment,
        working_directory=tmp_path,
    )  # fmt: skip
    try:
        process.wait_ready(PATIENCE_S)
        page = (REPOSITORY / "docs" / "TLS.md").read_text(encoding="utf-8")
        (listing,) = re.findall(r"`(barnabas --bootstrap localhost:9093 [^`]*)`", page)
        (principal,) = re.findall(r"`(--allow-principal [^`]*)`", page)
        own = f"barnabas --bootstrap 127.0.0.1:{inside}"
        shell.run(f"{own} topic create orders")
        listing = listing.replace("9093", str(inside + 1))
        assert "orders" not in shell.run(listing), "the user has no rights yet"
        shell.run(f"{own} acl add {principal} --operation Describe --topic orders")
        assert "orders" in shell.run(listing)
    finally:
        process.stop()
