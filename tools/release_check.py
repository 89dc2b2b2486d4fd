"""`make release-check`: what would be published, built and tried before anybody publishes it.

The sdist and the wheel are built (the wheel from the sdist, as an index's users get it), their metadata and
long description are checked, and the wheel is installed into an environment of its own, where the broker
must start, serve a record and stop, and what `--help` cites must be there.
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
        built = Path(scratch) / "dist"
        run(sys.executable, "-m", "build", "--outdir", str(built), str(REPOSITORY))
        archives = sorted(map(str, built.iterdir()))
        run(sys.executable, "-m", "twine", "check", "--strict", *archives)
        (wheel,) = built.glob("*.whl")
        missing = set(SHIPPED) - set(ZipFile(wheel).namelist())
        if missing:
            sys.exit(f"the wheel lacks {', '.join(sorted(missing))}")
        try_wheel(wheel, Path(scratch) / "environment")


def try_wheel(wheel: Path, environment: Path) -> None:
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    constraints = str(REPOSITORY / "constraints.txt")
    run(python, "-m", "pip", "install", "--quiet", "-c", constraints, str(wheel), cwd=environment)
    run(str(environment / "bin" / "barnabas"), "--version", cwd=environment)
    run(python, "-c", TRY_IT, cwd=environment)


def run(*command: str, cwd: Path = REPOSITORY) -> None:
    # The wheel is to be tried, not the source that this script lies beside.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, cwd=cwd, env=clean, check=True)  # noqa: S603 - commands of our own


if __name__ == "__main__":
    main()
