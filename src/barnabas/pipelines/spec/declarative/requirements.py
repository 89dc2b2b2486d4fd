"""Packages by which Spark runs declarative pipelines: those of Spark Connect, beside Spark's own."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from barnabas.core.optional_dependencies import install_command

CONNECT_PACKAGES: Final = ("grpc", "grpc_status", "google.rpc", "zstandard")


def connect_complaint() -> str | None:
    """Instruction to install a missing package, or None."""
    if not any(_is_missing(each) for each in CONNECT_PACKAGES):
        return None
    return f"declarative pipelines need Spark Connect: {install_command('declarative')}"


def _is_missing(package: str) -> bool:
    try:
        return find_spec(package) is None
    except ModuleNotFoundError:
        return True
