"""The cases, one file per group of APIs. A file is found by being here."""

from __future__ import annotations

import importlib
import pkgutil


def declare_all() -> None:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
