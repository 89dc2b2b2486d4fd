"""A Kerberos of a test's own: a realm in a directory, and its KDC on a loopback port.

Skipped with the reason where there is no KDC (Debian's krb5-kdc, krb5-admin-server, krb5-user) or no `gssapi`
package, which needs a compiler and libkrb5-dev.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_port

REALM = "EXAMPLE.COM"
START_TIMEOUT_S = 120.0
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


class Kerberos:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.environment = {
            "KRB5_CONFIG": str(directory / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5RCACHENAME": f"file2:{directory / 'rcache'}",
        }

    def prepare(self) -> None:
        (self.directory / "krb5.conf").write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
        )
        (self.directory / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self.port}\n kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {self.directory / 'principal'}\n"
            f"  key_stash_file = {self.directory / 'stash'}\n  supported_enctypes = aes256-cts:normal\n }}\n"
        )
        self.run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)

    def keytab(self, principal: str) -> Path:
        """The file with the key of a new principal."""
        path = self.directory / f"{principal.replace('/', '_')}.keytab"
        self.run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
        self.run("kadmin.local", "-r", REALM, "ktadd", "-k", str(path), principal)
        return path

    def ticket(self, principal: str) -> dict[str, str]:
        """The environment of a process that has a ticket of a new principal."""
        cache = f"FILE:{self.directory / principal}.cache"
        self.run("kinit", "-k", "-t", str(self.keytab(principal)), "-c", cache, principal)
        return {**self.environment, "KRB5CCNAME": cache}

    def run(self, program: str, *arguments: str) -> None:
        found = shutil.which(program, path=_PATH)
        assert found is not None
        done = subprocess.run(
            [found, *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"


@contextmanager
def running_kerberos(directory: Path) -> Iterator[Kerberos]:
    pytest.importorskip("gssapi", reason="the package gssapi is not installed")
    programs = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
    missing = [each for each in programs if shutil.which(each, path=_PATH) is None]
    if missing:
        pytest.skip(f"there is no {missing[0]}; Debian has it in krb5-kdc, krb5-admin-server and krb5-user")
    kerberos = Kerberos(directory)
    kerberos.prepare()
    program = shutil.which("krb5kdc", path=_PATH)
    assert program is not None
    with (directory / "kdc.log").open("wb") as output:
        kdc = subprocess.Popen(
            [program, "-n", "-r", REALM, "-P", str(directory / "kdc.pid")],
            env={**os.environ, **kerberos.environment},
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _listens(kerberos.port):
            assert kdc.poll() is None, (directory / "kdc.log").read_text()
            assert time.monotonic() < deadline, "the KDC does not start"
            time.sleep(0.02)
        yield kerberos
    finally:
        kdc.kill()
        kdc.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
