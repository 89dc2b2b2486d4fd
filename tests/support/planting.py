"""Bugs planted into modules of the product while they are imported: nothing on the disk changes.

A `Bug` is one small change to the text of a module, or several where one alone is made good by another
place. The simulator and the fuzzer each have a list of them, and each says how soon it catches every one.
`python -m tests.support.planting LIST NAME -- arguments` runs the command line of Barnabas with one planted.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple


class Edit(NamedTuple):
    module: str
    before: str
    """Text that stands in the module once."""
    after: str


class Bug(NamedTuple):
    name: str
    module: str
    before: str
    after: str
    more: tuple[Edit, ...] = ()
    """Where one change alone is made good by another place."""
    trial: str = ""
    """The trial of the simulator that the hunt forces on its seeds, if any."""

    @property
    def edits(self) -> tuple[Edit, ...]:
        return (Edit(self.module, self.before, self.after), *self.more)


class _Mutating(SourceFileLoader):
    def __init__(self, fullname: str, path: str, bug: Bug) -> None:
        super().__init__(fullname, path)
        self._bug = bug

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text(encoding="utf-8")
        return compile(mutated(self._bug, fullname, source), self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, bug: Bug) -> None:
        self._bug = bug

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if fullname not in modules_of(self._bug):
            return None
        found = PathFinder.find_spec(fullname, path)
        assert found is not None
        assert found.origin is not None
        return importlib.util.spec_from_loader(fullname, _Mutating(fullname, found.origin, self._bug))


def modules_of(bug: Bug) -> set[str]:
    return {edit.module for edit in bug.edits}


def mutated(bug: Bug, module: str, source: str) -> str:
    for edit in bug.edits:
        if edit.module == module:
            assert source.count(edit.before) == 1, f"{bug.name}: its place in {module} has changed"
            source = source.replace(edit.before, edit.after)
    return source


def check_place(bug: Bug) -> None:
    """The text that a bug replaces is still there, and the module is still Python afterwards."""
    for module in modules_of(bug):
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin).read_text(encoding="utf-8")
        assert mutated(bug, module, source) != source
        compile(mutated(bug, module, source), spec.origin, "exec")


def plant(bug: Bug) -> None:
    """Before the modules are imported."""
    for module in modules_of(bug):
        assert module not in sys.modules, f"{module} is imported already"
    sys.meta_path.insert(0, _Finder(bug))


def named(bugs: Sequence[Bug], name: str) -> Bug:
    (found,) = (each for each in bugs if each.name == name)
    return found


def main() -> None:
    listed, name, _, *arguments = sys.argv[1:]
    plant(named(importlib.import_module(listed).BUGS, name))
    sys.argv[1:] = arguments
    importlib.import_module("barnabas.cli.main").main()


if __name__ == "__main__":
    main()
