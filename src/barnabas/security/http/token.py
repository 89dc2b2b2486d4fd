"""Token of an HTTP interface on loopback, kept where the commands of the same user find it.

All users and programs of a machine share the loopback interface, web pages in a browser among them. So the
pipeline service, which runs the code that it receives, demands a token there too, as Jupyter does. Each start
makes a token, unless the environment names one. It is in a file that only its owner can read, in the form of
`http.tokens.file`. The port is in the file's name, so the services of two users do not collide.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from barnabas.config.properties import read_properties
from barnabas.core.errors import InvalidConfig
from barnabas.core.files import read_regular_file

VARIABLE: Final = "BARNABAS_PIPELINES_TOKEN"
NAME: Final = "local"
"""Name in the log of a client that shows the token."""
TOKEN_BYTES: Final = 32
FILE_BYTES_MAX: Final = 4_096
_PORTS: Final = {"http": 80, "https": 443}


class LocalToken(NamedTuple):
    token: str
    file: Path


def token_file(port: int, environment: Mapping[str, str]) -> Path:
    home = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "barnabas" / "tokens" / f"pipelines-{port}.properties"


@contextmanager
def kept_token(port: int, environment: Mapping[str, str] = os.environ) -> Iterator[LocalToken]:
    """Make a token and its file, which is removed at the end; INVALID_CONFIG if it cannot be written."""
    token = environment.get(VARIABLE) or secrets.token_urlsafe(TOKEN_BYTES)
    file = token_file(port, environment)
    new = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new.unlink(missing_ok=True)
        opened = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as written:
            written.write(f"{NAME}={token}\n")
        own = new.stat()
        new.replace(file)
    except OSError as error:
        raise InvalidConfig(
            f"the token of the REST interface cannot be kept in {file}: {error.strerror}; set http.users.file"
            " or http.tokens.file in --config, or http.open=true to let every local user in"
        ) from None
    try:
        yield LocalToken(token, file)
    finally:
        with contextlib.suppress(OSError):
            # A service that ends has closed its port, and the next one may have it: that file stays.
            if os.path.samestat(file.lstat(), own):
                file.unlink()


def token_for(url: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token for a service on this machine's loopback, if its file is here."""
    split = urlsplit(url)
    if not _is_loopback(split.hostname or ""):
        return None
    if environment.get(VARIABLE):
        return environment[VARIABLE]
    file = token_file(split.port or _PORTS.get(split.scheme, 0), environment)
    try:
        return read_properties(read_regular_file(file, FILE_BYTES_MAX).decode()).get(NAME)
    except (OSError, ValueError):
        return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
