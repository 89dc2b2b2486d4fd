"""Bugs that are planted to see whether the simulator finds them: the mistakes that engineers make in brokers.

Each is one small change to one module of the product, applied to its text while it is imported, in a process
of its own; nothing on the disk changes. `python -m tests.simulation.bugs` plants them one after the other,
and says after how many seeds each was caught.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from tests.simulation.planted import BUGS, Bug

CAUGHT = "caught by seed"


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


def plant(name: str) -> None:
    """Before the modules are imported."""
    (bug,) = (each for each in BUGS if each.name == name)
    for module in modules_of(bug):
        assert module not in sys.modules, f"{module} is imported already"
    sys.meta_path.insert(0, _Finder(bug))


def hunt(bug: Bug, options: argparse.Namespace) -> tuple[bool, str]:
    """Whether a seed has caught it, and what the run says at its end."""
    command = [
        sys.executable, "-m", "tests.simulation.run", "--bug", bug.name, "--until-failure", "--no-shrink",
        "--seed", str(options.seed), "--seeds", str(options.seeds),
        "--faults-seconds", str(options.faults_seconds),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return CAUGHT in lines[-1], lines[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which bugs, by parts of their names; without any, all")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=100, help="how many to try for each")
    parser.add_argument("--faults-seconds", type=float, default=60.0, help="virtual, in which things break")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes at a time")
    options = parser.parse_args()
    wanted = [bug for bug in BUGS if not options.names or any(each in bug.name for each in options.names)]
    survivors = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        found = pool.map(lambda bug: hunt(bug, options), wanted)
        for bug, (is_caught, told) in zip(wanted, found, strict=True):
            survivors += not is_caught
            print(f"{bug.name}: {told}", flush=True)
    print(f"{len(wanted)} bugs, {survivors} not caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
