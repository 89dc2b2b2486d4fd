"""Build hook for the wheel of one platform: the same source, with its hot modules compiled by mypyc.

    pip install .                       compiles if there is a C compiler, else installs the pure source
    BARNABAS_COMPILE=0 pip install .    does not compile
    BARNABAS_COMPILE=1 pip install .    fails if it cannot compile (`make wheel`)

The build copies the source, writes the codecs of the hot APIs into the copy
(`barnabas.protocol.codecs.writing`) and compiles the modules that pyproject.toml lists. The wheel has both:
Python imports the compiled module, and the source file beside it serves readers and tracebacks. A failed
compilation costs speed and not the installation: one line gives the reason, and the wheel is pure. An
editable install is never compiled.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "BARNABAS_COMPILE"
REQUIREMENTS = ["mypy>=2.4", "setuptools>=75"]
OPTIMIZE = "1"
"""Optimization level of the C compiler, as measured (bench/RESULTS.md): compiled code mostly calls the
interpreter."""


class CompiledWheel(BuildHookInterface):  # type: ignore[type-arg]
    def dependencies(self) -> list[str]:
        """Build requirements of the compilation; none if the build does not compile."""
        return REQUIREMENTS if is_demanded() or obstacle() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        why_not = obstacle()
        if why_not is None or is_demanded():
            try:
                self._compile(build_data)
            except (OSError, subprocess.SubprocessError) as error:
                if is_demanded():
                    raise
                told = "the compiler failed" if isinstance(error, subprocess.SubprocessError) else str(error)
                why_not = f"{told} ({SWITCH}=1 makes that an error, and shows it)"
            else:
                return
        self.app.display_warning(f"barnabas is installed as pure Python, not compiled: {why_not}")

    def _compile(self, build_data: dict[str, Any]) -> None:
        tree = Path(self.root) / "build" / "compiled"
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(Path(self.root) / "src", tree, ignore=shutil.ignore_patterns("__pycache__"))
        codecs = tree / "barnabas" / "protocol" / "codecs"
        run_in(tree, "-m", "barnabas.protocol.codecs.writing", str(codecs))
        modules = files_of(tree / "barnabas", self.config["modules"])
        # In a child process: mypyc exits on an unsupported construct.
        run_in(tree, str(Path(__file__).resolve()), *(str(module.relative_to(tree)) for module in modules))
        source = Path(self.root) / "src"
        written = [each for each in codecs.glob("*.py") if not (source / each.relative_to(tree)).exists()]
        for built in [*tree.rglob("*.so"), *written]:
            build_data["force_include"][str(built)] = str(built.relative_to(tree))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def is_demanded() -> bool:
    return os.environ.get(SWITCH, "") not in {"", "0"}


def obstacle() -> str | None:
    """Reason why this system cannot compile; None if it can."""
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH} is 0"
    if sys.implementation.name != "cpython" or os.name != "posix":
        return "only CPython on POSIX systems can compile"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "the header files of Python are missing (a package like python3-dev has them)"
    return None


def files_of(package: Path, patterns: list[str]) -> list[Path]:
    """Modules that pyproject.toml lists for compilation: `folder/*.py`, or `folder/{one,another}.py`."""
    files: set[Path] = set()
    for pattern in patterns:
        head, _, rest = pattern.partition("{")
        names, _, tail = rest.partition("}")
        for name in names.split(","):
            found = {file for file in package.glob(head + name + tail) if file.name != "__init__.py"}
            if not found:
                raise FileNotFoundError(
                    f"no module matches {head}{name}{tail} of the list of compiled modules"
                )
            files |= found
    return sorted(files)


def run_in(tree: Path, *arguments: str) -> None:
    path = [str(tree), *filter(None, [os.environ.get("PYTHONPATH")])]  # pip's build environment is in it
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    subprocess.run([sys.executable, *arguments], cwd=tree, env=environment, check=True)  # noqa: S603


def compile_modules(modules: Sequence[str]) -> None:
    """Put the library of each module beside it. Paths are relative to the tree, the current directory."""
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution  # noqa: PLC0415
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415

    class BuildInParallel(build_ext):  # type: ignore[misc]
        """Compile the files in parallel. For setuptools all modules are one library, compiled file by
        file."""

        def build_extensions(self) -> None:
            compile_some = self.compiler.compile

            def compile_all(sources: list[str], **options: Any) -> list[str]:
                largest_first = sorted(sources, key=os.path.getsize, reverse=True)
                with ThreadPoolExecutor(os.cpu_count()) as threads:
                    built = list(threads.map(lambda source: compile_some([source], **options), largest_first))
                return [name for names in built for name in names]

            self.compiler.compile = compile_all
            super().build_extensions()

    # `make check` checks the types; mypyc only reads them, with any set of installed packages.
    checked = ["--config-file=", "--ignore-missing-imports", "--python-version=3.11"]
    extensions = mypycify([*checked, *modules], opt_level=OPTIMIZE, debug_level="0", multi_file=True)
    command = BuildInParallel(Distribution({"name": "barnabas", "ext_modules": extensions}))
    command.build_lib = "."
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    compile_modules(sys.argv[1:])
