"""The targets under an engine that follows coverage: Atheris, which is libFuzzer for Python.

`python -m tests.fuzz.guided --runs 100000 --seed 1`. The first two bytes of an input choose the target. The
modules of Barnabas and the codecs that are compiled at first use are instrumented. Inputs that reach new code
stay in a corpus for the time of the run. It needs the extra `fuzz`; without it there is `byte_loop` alone.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

MISSING = "the coverage-guided engine needs Atheris: pip install '.[fuzz]' (Linux, CPython 3.11 to 3.13)"
FOUND = "found: "
INPUT_BYTES_MAX = 2_048


def is_here() -> bool:
    try:
        import atheris  # noqa: F401
    except ImportError:
        return False
    return True


def run_guided(runs: int, seed: int) -> tuple[int, dict[str, Any] | None]:
    """In a process of its own: how many inputs it ran, and what it found."""
    command = [sys.executable, "-m", "tests.fuzz.guided", "--runs", str(runs), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, check=False)
    told = done.stderr.decode("utf-8", "replace") + done.stdout.decode("utf-8", "replace")
    counts = re.findall(r"^(?:Done |#)(\d+)", told, re.MULTILINE)
    found = [line for line in told.splitlines() if line.startswith(FOUND)]
    if not found and done.returncode:
        raise RuntimeError(told[-2_000:])
    return max(map(int, counts), default=0), json.loads(found[0].removeprefix(FOUND)) if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bug", help="the name of one that is planted")
    options = parser.parse_args()
    if not is_here():
        sys.exit(MISSING)
    if options.bug:
        from tests.fuzz.planted import BUGS
        from tests.support import planting

        planting.plant(planting.named(BUGS, options.bug))
    _fuzz(options.runs, options.seed)


def _fuzz(runs: int, seed: int) -> None:
    import atheris

    with atheris.instrument_imports(include=["barnabas"]):
        from barnabas.protocol.schema import codegen
    _instrument_codecs(codegen.Source, atheris.instrument_func)
    with atheris.instrument_imports(include=["barnabas"]):
        from tests.fuzz.byte_loop import attempt
        from tests.fuzz.targets import all_targets

        targets = all_targets(Random(seed))

    def one_input(data: bytes) -> None:
        if len(data) < 2:
            return
        target = targets[int.from_bytes(data[:2], "big") % len(targets)]
        finding = attempt(target, data[2:], 0)
        if finding is not None:
            raw = base64.b64encode(finding.data).decode()
            told = {"target": finding.target, "data": raw, "kind": finding.kind, "told": finding.told}
            print(FOUND + json.dumps(told), flush=True)
            raise RuntimeError(finding.kind)

    with tempfile.TemporaryDirectory(prefix="fuzz-corpus-") as corpus:
        for number, target in enumerate(targets):
            for at, each in enumerate(target.seeds):
                Path(corpus, f"{number}-{at}").write_bytes(number.to_bytes(2, "big") + each[:INPUT_BYTES_MAX])
        arguments = [
            f"-runs={runs}",
            f"-seed={seed}",
            f"-max_len={INPUT_BYTES_MAX}",
            "-timeout=30",
            "-rss_limit_mb=4096",
        ]
        atheris.Setup([sys.argv[0], *arguments, f"-artifact_prefix={corpus}/", corpus], one_input)
        atheris.Fuzz()


def _instrument_codecs(source: Any, instrument: Callable[[Any], Any]) -> None:
    define = source.define

    def instrumented(self: Any, name: str) -> Any:
        return instrument(define(self, name))

    source.define = instrumented


if __name__ == "__main__":
    main()
