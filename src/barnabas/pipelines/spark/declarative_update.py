"""Process of one update of a declarative pipeline: `spark-pipelines run`, which ends with this process.

Spark's program knows nothing of the service. So this process holds an end of a pipe to the service. When the
pipe closes, the service is gone or stops the pipeline, and the update ends at once. The next update repeats
an unfinished micro-batch. Two updates at a time would get in each other's way.

Spark's output goes to standard error. Standard output has one line of JSON, the outcome.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from barnabas.pipelines.spark.jvm.session import FEW_RECOMPILATIONS, LOOPBACK, use_unzipped_home
from barnabas.pipelines.spark.recovery.error_reasons import is_of_absence, reason_of_text
from barnabas.pipelines.spec.declarative.requirements import connect_complaint

LINE_CHARACTERS_MAX: Final = 16 * 1024
CATALOGUE: Final = "spark.sql.catalogImplementation"
"""Only spark-submit may set it, because it is fixed when Spark starts."""
LINES_KEPT: Final = 400
PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    file = sys.argv[1]
    complaint = connect_complaint()
    if complaint is not None:
        _answer({"error": complaint, "is_away": False})
        return
    environment = _environment()
    process = subprocess.Popen(  # noqa: S603 - Spark's own program
        [str(_program()), *_catalogue(environment), "run", "--spec", file],
        cwd=Path(file).parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - no thread runs yet
    )
    threading.Thread(target=_end_with_input, daemon=True).start()
    code, lines = _output(process)
    _answer(_outcome(code, "\n".join(lines)))


def _answer(outcome: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(outcome) + "\n")
    sys.stdout.flush()


def _outcome(code: int, text: str) -> dict[str, Any]:
    if code == 0:
        return {"error": None, "is_away": False}
    if code < 0 or not text:
        ended = f"signal {-code}" if code < 0 else f"code {code}"
        return {"error": f"Spark ended with {ended}", "is_away": False}
    return {"error": reason_of_text(text), "is_away": is_of_absence(text)}


def _program() -> Path:
    found = find_spec("pyspark")
    assert found is not None
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0]) / "bin" / "spark-pipelines"


def _catalogue(environment: Mapping[str, str]) -> list[str]:
    """Settings that make Spark keep its tables: a metastore in the directory of the project.

    Spark's default catalogue is in memory. The second update would find the files of a table that it does not
    know, and refuse to write there. A catalogue in Spark's own defaults stays.
    """
    home = environment.get("SPARK_HOME", str(_program().parents[1]))
    defaults = Path(environment.get("SPARK_CONF_DIR", f"{home}/conf")) / "spark-defaults.conf"
    if defaults.is_file() and CATALOGUE in defaults.read_text(encoding="utf-8"):
        return []
    return ["--conf", f"{CATALOGUE}=hive"]


def _environment() -> Mapping[str, str]:
    """Environment of Spark's program: our Python, and two JVMs that waste little on an update's start."""
    use_unzipped_home()
    java = " ".join(filter(None, [FEW_RECOMPILATIONS, os.environ.get("JAVA_TOOL_OPTIONS")]))
    here = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
        "JAVA_TOOL_OPTIONS": java,
    }
    return {"SPARK_LOCAL_IP": LOOPBACK, **os.environ, **here}


def _die_with_parent() -> None:
    """Let the kernel end Spark when this process is killed. Elsewhere than on Linux, the pipe alone tells."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with_input() -> None:
    """End this process and all of Spark's when the pipe closes. The service made them a process group."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def _output(process: subprocess.Popen[bytes]) -> tuple[int, list[str]]:
    assert process.stdout is not None
    kept: deque[str] = deque(maxlen=LINES_KEPT)
    for line in process.stdout:
        text = line[:LINE_CHARACTERS_MAX].decode("utf-8", "replace").rstrip()
        kept.append(text)
        sys.stderr.write(f"{text}\n")
    return process.wait(), list(kept)


if __name__ == "__main__":
    main()
