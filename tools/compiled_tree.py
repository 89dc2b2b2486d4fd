"""Compiled source tree for `make run`, built in the background for the next start.

    python tools/compiled_tree.py .venv/compiled

A compilation takes a minute or more, and `make run` should show a broker at once. So it starts the pure
source, and compiles at the lowest priority for the next start. The compiled tree is kept under the digest of
its source: a changed line is never run from an old tree.

Prints the tree's directory, or nothing if there is none yet; stderr names the code that runs. `pip wheel`
compiles, as an installation does (hatch_build.py), and BARNABAS_COMPILE=0 disables it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from zipfile import ZipFile

REPOSITORY = Path(__file__).resolve().parents[1]
KEPT = 2
"""Number of compiled trees to keep: a broker may still run on the previous one."""
SWITCH = "BARNABAS_COMPILE"
WHY_NOT = "why-not.txt"
"""File that marks a tree whose compilation failed."""


def digest_of(repository: Path) -> str:
    """Digest of all files that determine the compiled tree."""
    digest = hashlib.sha256(str(sysconfig.get_config_var("EXT_SUFFIX")).encode())
    for file in [
        repository / "pyproject.toml",
        repository / "hatch_build.py",
        *sorted(repository.glob("src/**/*.py")),
    ]:
        digest.update(b"\0%s\0" % str(file.relative_to(repository)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def find_or_begin(repository: Path, home: Path) -> str:
    """Directory of the compiled tree, or "" if the pure source must run."""
    if os.environ.get(SWITCH) == "0":
        return ""
    tree = home / digest_of(repository)
    if (tree / "barnabas").is_dir():
        say(f"running compiled code ({tree})")
        return str(tree)
    if tree.is_dir():
        say(f"running as pure Python; {(tree / WHY_NOT).read_text()}")
        return ""
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, "--build", str(repository), str(tree)]
    with (home / "build.log").open("ab") as log:
        # In a session of its own, so that the Ctrl-C that ends the broker does not end the compilation.
        subprocess.Popen(  # noqa: S603 - ourselves
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    say(
        "running as pure Python; the hot modules are compiled once in the background, for the next start "
        f"(a minute or two; log in {home}/build.log; {SWITCH}=0 switches it off)"
    )
    return ""


def build(repository: Path, tree: Path) -> None:
    """Compile, unless another process does; the finished tree appears at once."""
    os.nice(19)
    with (tree.parent / "lock").open("w") as lock, tempfile.TemporaryDirectory(dir=tree.parent) as scratch:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if tree.is_dir():
            return
        # A copy: the build leaves files beside its source, and an editor may change the source meanwhile.
        copy, unpacked = Path(scratch, "copy"), Path(scratch, "unpacked")
        unpacked.mkdir()
        for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
            copy.mkdir(exist_ok=True)
            shutil.copy(repository / name, copy)
        for name in ("src", "docs"):
            shutil.copytree(repository / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        command = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps"]
        subprocess.run(  # noqa: S603 - pip, on our own source
            [*command, "--wheel-dir", scratch, str(copy)], env=os.environ | {SWITCH: "1"}, check=False
        )
        wheels = list(Path(scratch).glob("*.whl"))
        if wheels and digest_of(copy) == tree.name:
            with ZipFile(wheels[0]) as wheel:
                wheel.extractall(unpacked)
            subprocess.run([sys.executable, "-m", "compileall", "-q", str(unpacked)], check=False)  # noqa: S603
        elif not wheels:
            log = tree.parent / "build.log"
            why_not = f"the compilation failed (see {log}; remove {tree} to try again)"
            (unpacked / WHY_NOT).write_text(why_not)
        else:
            return  # the source changed during the copy: the next start compiles again
        unpacked.rename(tree)
        trees = sorted((one for one in tree.parent.iterdir() if len(one.name) == 16), key=os.path.getmtime)
        for old in trees[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1] == "--build":
        build(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        print(find_or_begin(REPOSITORY, Path(sys.argv[1]).resolve()))
