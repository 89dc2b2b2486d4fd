"""What `make run` puts before the source: the same source, compiled, once there was time for that.

    python tools/compiled_tree.py .venv/compiled

To compile takes a minute or more, and `make run` is for people who want to see a broker now. So it starts the
source as it is, and compiles beside it, at the lowest priority, for the next time. The compiled tree is kept
under the digest of what it was made from: whoever changes a line runs the line.

Prints the tree's directory, or nothing when there is none yet; says on stderr which of the two. `pip wheel`
compiles, just as an installation does (hatch_build.py), and BARNABAS_COMPILE=0 switches it off.
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
"""Of compiled trees: a broker may still be running on the one before."""
SWITCH = "BARNABAS_COMPILE"
WHY_NOT = "why-not.txt"
"""Is all of a tree that could not be compiled."""


def digest_of(repository: Path) -> str:
    """Of everything that decides what the compiled tree is like."""
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
    """The directory of the compiled tree, or "" when the source has to do."""
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
        # In a session of its own, so that the Ctrl-C that ends the broker does not end it.
        subprocess.Popen(  # noqa: S603 - ourselves
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    say(
        "running as pure Python; what every request passes through is compiled meanwhile, once, for the next "
        f"start (a minute or two in the background, {home}/build.log; {SWITCH}=0 switches it off)"
    )
    return ""


def build(repository: Path, tree: Path) -> None:
    """Compile, unless somebody is at it; what comes of it is there all at once."""
    os.nice(19)
    with (tree.parent / "lock").open("w") as lock, tempfile.TemporaryDirectory(dir=tree.parent) as scratch:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if tree.is_dir():
            return
        # A copy: the build leaves files beside what it builds from, and somebody may be editing that.
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
            why_not = f"compiling did not work ({log} says why; remove {tree} to have it tried again)"
            (unpacked / WHY_NOT).write_text(why_not)
        else:
            return  # changed while it was copied: the next start sees to it
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
