"""The process that has Spark in it: runs one or several pipelines, as its parent tells it to.

Commands come as JSON lines on standard input, events go as JSON lines to what was standard output
at the start (Spark and its JVM may print: their output is sent to standard error). When standard
input ends, the parent is gone, and so is the driver, with its queries stopped in order.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import IO, Any

from barnabas.pipelines.progress import Progress
from barnabas.pipelines.spark.reach import check_topics
from barnabas.pipelines.spark.reasons import reason_of, scrub
from barnabas.pipelines.spark.run import PipelineFailed, PipelineInvalid, Run
from barnabas.pipelines.spark.session import SparkMissing, open_session
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.pipelines.spec.validation import load_document
from barnabas.security.secret_references import UnresolvedSecret

STOP_TIMEOUT_S = 30.0


class Driver:
    def __init__(self, events: IO[str], master: str | None, conf: Mapping[str, str]) -> None:
        self._events = events
        self._lock = threading.Lock()
        self._spark = open_session(master, conf, name="barnabas pipelines")
        self._stops: dict[str, threading.Event] = {}
        self._threads: dict[str, threading.Thread] = {}

    def say(self, event: str, **more: Any) -> None:
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
        for stop in self._stops.values():
            stop.set()
        for thread in self._threads.values():
            thread.join(STOP_TIMEOUT_S)
        self._spark.stop()

    def _work(self, spec: PipelineSpec, command: Mapping[str, Any], stop: threading.Event) -> None:
        from barnabas.pipelines.spark.runner import run_pipeline  # noqa: PLC0415 - after the session is there

        name, attempt = spec.name, command["attempt"]
        run = Run(self._spark, spec, command["bootstrap"], command["state_location"], command["generation"])

        def on_progress(progress: Progress) -> None:
            self.say("progress", name=name, attempt=attempt, progress=progress.to_document())

        error: str | None = None
        is_final = False
        try:
            check_topics(spec, command["bootstrap"])
            run_pipeline(
                run,
                on_progress,
                stopped=stop,
                on_running=lambda: self.say("running", name=name, attempt=attempt),
            )
        except (PipelineFailed, UnresolvedSecret) as failure:
            error = scrub(str(failure), spec)
            is_final = isinstance(failure, (PipelineInvalid, UnresolvedSecret))
        except Exception as failure:  # noqa: BLE001 - whatever it is, the pipeline has failed by it
            sys.stderr.write(scrub(traceback.format_exc(), spec))
            error = reason_of(failure, spec)
        self.say("ended", name=name, attempt=attempt, error=error, is_final=is_final)


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
    driver.say("ready")
    try:
        for line in sys.stdin:
            driver.handle(json.loads(line))
    except KeyboardInterrupt:
        pass
    finally:
        driver.finish()


if __name__ == "__main__":
    main()
