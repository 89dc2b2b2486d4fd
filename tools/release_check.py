"""`make release-check`: build the release artifacts and try them before publication.

The script builds the sdist, and both wheels from it, as users of an index get them: the pure one, which runs
everywhere, and the compiled one of this platform. It checks their metadata and long description. It installs
each wheel into a fresh environment, where the broker must start, serve a record, stop, name its build, and
have the files that `--help` cites. An installation must not fail where the compiler is missing or broken: the
wheel is pure then.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from zipfile import ZipFile

REPOSITORY = Path(__file__).resolve().parents[1]
BUILD = (sys.executable, "-m", "build")
WHEELS = {"0": "pure Python", "1": "compiled"}
"""Build name in `barnabas --version`, by BARNABAS_COMPILE (hatch_build.py)."""
WITHOUT_COMPILER = ("no-such-compiler", "false")
"""Values of CC: a missing compiler, and a failing one."""
SHIPPED = ("barnabas/docs/CONFIG.md", "barnabas/docs/pipeline.schema.json", "barnabas/py.typed")

TRY_IT = """
import subprocess, sys
from barnabas.testing.broker import run_broker
with run_broker() as broker:
    tool = [sys.executable, "-m", "barnabas", "--bootstrap", broker.bootstrap]
    subprocess.run([*tool, "produce", "greetings"], input=b"hello\\n", check=True)
    read = [*tool, "consume", "greetings", "--from-beginning", "--count", "1"]
    assert b"hello" in subprocess.run(read, capture_output=True, check=True).stdout
print("the wheel serves")
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="barnabas-release-") as scratch:
        for switch, code in WHEELS.items():
            built = Path(scratch) / switch
            run(*BUILD, "--outdir", str(built), str(REPOSITORY), BARNABAS_COMPILE=switch)
            archives = sorted(map(str, built.iterdir()))
            run(sys.executable, "-m", "twine", "check", "--strict", *archives)
            (wheel,) = built.glob("*.whl")
            missing = set(SHIPPED) - set(ZipFile(wheel).namelist())
            if missing:
                sys.exit(f"{wheel.name} lacks {', '.join(sorted(missing))}")
            try_wheel(wheel, Path(scratch) / f"environment-{switch}", code)
        for compiler in WITHOUT_COMPILER:
            built = Path(scratch) / compiler
            run(*BUILD, "--wheel", "--outdir", str(built), str(REPOSITORY), CC=compiler)
            if not [*built.glob("*-none-any.whl")]:
                sys.exit(f"with the compiler {compiler} there is no pure wheel")


def try_wheel(wheel: Path, environment: Path, code: str) -> None:
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    constraints = str(REPOSITORY / "constraints.txt")
    run(python, "-m", "pip", "install", "--quiet", "-c", constraints, str(wheel), cwd=environment)
    version = run(str(environment / "bin" / "barnabas"), "--version", cwd=environment)
    if f"({code})" not in version:
        sys.exit(f"{wheel.name} should be {code}, but its version is {version.strip()}")
    run(python, "-c", TRY_IT, cwd=environment)


def run(*command: str, cwd: Path = REPOSITORY, **variables: str) -> str:
    """Run and show a command; returns its output."""
    # The wheel is under test, not the source beside this script.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(command, cwd=cwd, env=clean, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - commands of our own
    sys.stdout.write(done.stdout)
    done.check_returncode()
    return done.stdout


if __name__ == "__main__":
    main()
