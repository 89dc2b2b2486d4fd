"""Addresses of databases: their dialects, drivers and errors. Needs no driver."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

_DIALECTS = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
DRIVERS: Mapping[str, tuple[str, str]] = {
    "postgresql": ("pg8000", "postgres"),
    "mysql": ("pymysql", "mysql"),
}
"""Package of each dialect's driver, and the extra that installs it. SQLite's is a part of Python."""
_FORMS = "postgresql://host:port/database, mysql://host:port/database or sqlite:path"
_TLS_NAMES = ("sslmode", "ssl-mode", "ssl_mode")
TLS_MODES = {
    "disable": "disabled", "disabled": "disabled", "prefer": "preferred", "preferred": "preferred",
    "required": "required", "trust": "required",
    "verify_ca": "verify_ca", "verify-ca": "verify_ca",
    "verify_identity": "verify_identity", "verify-full": "verify_identity",
}  # fmt: skip
"""Values of `sslMode`, as MySQL's and MariaDB's connectors write them. Required alone encrypts, and trusts any
server; the others check its certificate, and its name."""
_TLS_ELSEWHERE = ("ssl", "usessl", "requiressl", "usetls")


def dialect_of(url: str) -> str | None:
    """Dialect of an address, or None for an unknown one."""
    return _DIALECTS.get(_scheme(url))


def database_complaint(url: str) -> str | None:
    """Check of an address without references. Text before the host may be a password and is not shown."""
    scheme = _scheme(url)
    dialect = _DIALECTS.get(scheme)
    if dialect == "sqlite":
        path = sqlite_path(url)
        if path and not path.startswith(":memory:"):
            return None
        return (
            "found no path of a file; expected sqlite:path, because a pipeline opens the file again and again"
        )
    rest = url.removeprefix("jdbc:").partition("://")[2]
    if dialect is None or not rest.partition("/")[2]:
        return f"found '{scheme}://…'; expected {_FORMS}"
    return _tls_complaint(url) if dialect == "mysql" else None


def _tls_complaint(url: str) -> str | None:
    for name, values in parse_qs(urlsplit(url.removeprefix("jdbc:")).query).items():
        is_mode = name.lower() in _TLS_NAMES
        if is_mode and values[-1].lower() not in TLS_MODES:
            return f"found {name}={values[-1]}; expected {name}=required, verify_ca or verify_identity"
        if name.lower() in _TLS_ELSEWHERE:
            return f"found {name}={values[-1]}; expected sslMode=required, verify_ca or verify_identity"
    return None


def tls_of(url: str) -> tuple[str, str | None]:
    """Mode of TLS, and the file with the authorities to trust (`sslCa`), if one is named."""
    given = {name.lower(): values[-1] for name, values in parse_qs(urlsplit(url).query).items()}
    mode = next((given[name] for name in _TLS_NAMES if name in given), "preferred")
    return TLS_MODES.get(mode.lower(), "preferred"), given.get("sslca") or given.get("ssl-ca")


def sqlite_path(url: str) -> str:
    """Path of an SQLite address. `sqlite:///path` is absolute, as in `file:///path`."""
    rest = url.removeprefix("jdbc:").partition(":")[2].partition("?")[0]
    return rest.removeprefix("//")


def _scheme(url: str) -> str:
    return url.removeprefix("jdbc:").partition(":")[0]
