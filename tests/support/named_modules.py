"""Module names as documents write them, compared with the source."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"


def is_module(name: str) -> bool:
    """Whether this is a module, or a class in one, under the end of its dotted name."""
    if any(module == name or module.endswith(f".{name}") for module in modules()):
        return True
    inside, _, class_name = name.rpartition(".")
    paths = [path for module, path in modules().items() if inside and f".{module}".endswith(f".{inside}")]
    declared = re.compile(rf"^class {re.escape(class_name)}\b", re.MULTILINE)
    return any(declared.search(path.read_text(encoding="utf-8")) for path in paths)


@cache
def modules() -> dict[str, Path]:
    """Modules and packages by their full names."""
    return {_name_of(path): path for path in SOURCE.rglob("*.py")}


def _name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
