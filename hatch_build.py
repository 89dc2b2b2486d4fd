"""The wheel of one platform: the same source, with its hot modules compiled by mypyc.

    make wheel          or          HATCH_BUILD_HOOK_ENABLE_CUSTOM=true pip wheel --no-deps .

Without that variable nothing of this runs, and the wheel is the same on every platform. With it, a copy of
the source is made, the codecs of the hot APIs are written out in it (`barnabas.protocol.writing`), and the
modules that pyproject.toml lists are compiled. The wheel has both: what is compiled is imported instead of
the file beside it, which stays for readers and tracebacks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OPTIMIZE = "1"
"""The C compiler's level, as measured (bench/RESULTS.md); what is compiled mostly calls the interpreter."""


class CompiledWheel(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        tree = Path(self.root) / "build" / "compiled"
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(Path(self.root) / "src", tree, ignore=shutil.ignore_patterns("__pycache__"))
        codecs = tree / "barnabas" / "protocol" / "codecs"
        run_in(tree, "barnabas.protocol.writing", str(codecs))
        compile_modules(tree, files_of(tree / "barnabas", self.config["modules"]))
        for built in [*tree.rglob("*.so"), *codecs.glob("[a-z]*.py")]:
            build_data["force_include"][str(built)] = str(built.relative_to(tree))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def files_of(package: Path, patterns: list[str]) -> list[Path]:
    """The modules that pyproject.toml wants compiled: `folder/*.py`, or `folder/{one,another}.py`."""
    files: set[Path] = set()
    for pattern in patterns:
        head, _, rest = pattern.partition("{")
        names, _, tail = rest.partition("}")
        for name in names.split(","):
            found = {file for file in package.glob(head + name + tail) if file.name != "__init__.py"}
            if not found:
                raise FileNotFoundError(f"{head}{name}{tail} is to be compiled, and is not there")
            files |= found
    return sorted(files)


def run_in(tree: Path, module: str, *arguments: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(tree)}
    subprocess.run([sys.executable, "-m", module, *arguments], env=environment, check=True)  # noqa: S603


def compile_modules(tree: Path, modules: list[Path]) -> None:
    """Puts each module's library beside it."""
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution  # noqa: PLC0415
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415

    with chdir(tree):
        # Types are checked by `make check`; here they are only read, whatever else is installed.
        checked = ["--config-file=", "--ignore-missing-imports", "--python-version=3.11"]
        names = [str(module.relative_to(tree)) for module in modules]
        extensions = mypycify([*checked, *names], opt_level=OPTIMIZE, debug_level="0", multi_file=True)
        command = build_ext(Distribution({"name": "barnabas", "ext_modules": extensions}))
        command.build_lib = "."
        command.parallel = os.cpu_count()
        command.ensure_finalized()
        command.run()
