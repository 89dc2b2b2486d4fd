"""Driver process with Spark: runs one or several pipelines on commands of the service.

Commands arrive as JSON lines on standard input. Events leave as JSON lines on the initial standard output;
later output of Spark and its JVM goes to standard error. At the end of standard input the service is gone:
the driver stops its queries in order and ends. When the JVM ends (out of memory, killed), the driver ends at
once, because nothing in it can continue.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import IO, Any

from barnabas.pipelines.spark.context.connectivity_checks import check_topics
from barnabas.pipelines.spark.context.run_context import (
    Away,
    PipelineFailed,
    PipelineInvalid,
    Run,
    TooManyErrors,
)
from barnabas.pipelines.spark.jvm.session import SparkMissing, open_session
from barnabas.pipelines.spark.recovery.error_reasons import is_of_absence, reason_of, scrub
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.pipelines.spec.validation import load_document
from barnabas.pipelines.state.progress import Progress
from barnabas.security.identity.secret_references import UnresolvedSecret

STOP_TIMEOUT_S = 30.0
JVM_GONE = 4
"""Exit code of a driver whose JVM has ended."""


class Driver:
    def __init__(self, events: IO[str], master: str | None, conf: Mapping[str, str]) -> None:
        self._events = events
        self._lock = threading.Lock()
        self._spark = open_session(master, conf, name="barnabas pipelines")
        self._stops: dict[str, threading.Event] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._is_finishing = False
        jvm = getattr(self._spark.sparkContext._gateway, "proc", None)
        if jvm is not None:
            threading.Thread(target=self._watch_jvm, args=(jvm,), name="watch the JVM", daemon=True).start()

    def _watch_jvm(self, jvm: subprocess.Popen[bytes]) -> None:
        code = jvm.wait()
        if self._is_finishing:
            return
        with self._lock:  # no event is truncated
            sys.stderr.write(f"Spark's JVM has ended with code {code}: out of memory, or killed\n")
            sys.stderr.flush()
            os._exit(JVM_GONE)

    def send_event(self, event: str, **more: Any) -> None:
        with self._lock:
            self._events.write(json.dumps({"event": event, **more}) + "\n")
            self._events.flush()

    def handle(self, command: Mapping[str, Any]) -> None:
        if command["do"] == "start":
            spec = load_document(command["spec"])
            previous = self._threads.pop(spec.name, None)
            if previous is not None:
                previous.join(STOP_TIMEOUT_S)
            stop = self._stops[spec.name] = threading.Event()
            thread = threading.Thread(
                target=self._work, args=(spec, command, stop), name=spec.name, daemon=True
            )
            self._threads[spec.name] = thread
            thread.start()
        elif command["do"] == "stop" and command["name"] in self._stops:
            self._stops[command["name"]].set()

    def finish(self) -> None:
        self._is_finishing = True
        for stop in self._stops.values():
            stop.set()
        for thread in self._threads.values():
            thread.join(STOP_TIMEOUT_S)
        self._spark.stop()

    def _work(self, spec: PipelineSpec, command: Mapping[str, Any], stop: threading.Event) -> None:
        from barnabas.pipelines.spark.runner import run_pipeline  # noqa: PLC0415 - after the session is open

        name, attempt = spec.name, command["attempt"]
        run = Run(
            self._spark,
            spec,
            command["bootstrap"],
            command["state_location"],
            command["generation"],
            is_confined=command.get("is_confined", True),
        )

        def on_progress(progress: Progress) -> None:
            self.send_event("progress", name=name, attempt=attempt, progress=progress.to_document())

        error: str | None = None
        is_final, is_away = False, False
        try:
            check_topics(spec, command["bootstrap"])
            run_pipeline(
                run,
                on_progress,
                stopped=stop,
                on_running=lambda: self.send_event("running", name=name, attempt=attempt),
            )
        except (PipelineFailed, UnresolvedSecret) as failure:
            error = scrub(str(failure), spec)
            is_final = isinstance(failure, (PipelineInvalid, TooManyErrors, UnresolvedSecret))
            is_away = isinstance(failure, Away)
        except Exception as failure:  # noqa: BLE001 - any exception is a failure of the pipeline
            sys.stderr.write(scrub(traceback.format_exc(), spec))
            error = reason_of(failure, spec)
            is_away = is_of_absence(str(failure))
        if error is not None and not is_final:
            is_away = is_away or _is_cluster_away(spec, command["bootstrap"])
        self.send_event(
            "ended", name=name, attempt=attempt, error=error, is_final=is_final, is_counted=not is_away
        )


def _is_cluster_away(spec: PipelineSpec, bootstrap: str) -> bool:
    """True if a broker is out of reach now: many failures do not say that it was."""
    try:
        check_topics(spec, bootstrap)
    except Away:
        return True
    except Exception:  # noqa: BLE001 - the pipeline's own failure is the one to report
        return False
    return False


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        driver = Driver(events, settings.get("master"), settings.get("conf") or {})
    except SparkMissing as error:
        events.write(json.dumps({"event": "unable", "error": str(error)}) + "\n")
        events.close()
        sys.exit(1)
    driver.send_event("ready")
    try:
        for line in sys.stdin:
            driver.handle(json.loads(line))
    except KeyboardInterrupt:
        pass
    finally:
        driver.finish()


if __name__ == "__main__":
    main()
