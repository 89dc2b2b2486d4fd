"""Connect's `/admin/loggers`: log levels of this worker, read and changed at run time.

Levels have Log4j's names, as Connect's tools expect, and map to Python's. Changing a logger also changes
those below it, as in Connect's namespaces. Levels are not stored: a new process starts with its configured
ones. Gap: drivers are separate processes and keep their levels; `spark.log.level` sets Spark's.

A logger that there is not may be named, for code that is not loaded yet. Python keeps such a logger forever,
with one for each part of its name. So names that clients invent are short and few.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from barnabas.core.clock import Clock
from barnabas.network.http.json_body import read_json
from barnabas.pipelines.service.errors import ServiceError

ROOT: Final = "root"
BODY_BYTES_MAX: Final = 16 * 1024
INVENTED_MAX: Final = 100
NAME_CHARACTERS_MAX: Final = 200
NAME_PARTS_MAX: Final = 20
LEVELS: Final = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
}


class Loggers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._modified_ms: dict[str, int] = {}
        self._invented = 0
        """Loggers that clients have named first."""

    async def listing(self, _: Request) -> Response:
        return JSONResponse({name: self._describe(name) for name in _names()})

    async def one(self, request: Request) -> Response:
        name = request.path_params["logger"]
        if name not in _names():
            raise ServiceError(404, f"Logger {name} not found.")
        return JSONResponse(self._describe(name))

    async def change(self, request: Request) -> Response:
        """Set a level; returns the changed loggers, or nothing for `scope=cluster`, as in Connect."""
        raw = await request.body()
        if len(raw) > BODY_BYTES_MAX:
            raise ServiceError(413, f"The body has more than {BODY_BYTES_MAX} bytes")
        try:
            body = read_json(raw)
        except (ValueError, RecursionError):
            body = None
        wanted = body.get("level") if isinstance(body, dict) else None
        if not wanted:
            raise ServiceError(400, "Desired 'level' parameter was not specified in request.")
        level = LEVELS.get(str(wanted).upper())
        if level is None:
            raise ServiceError(404, f"invalid log level '{wanted}'; expected one of {', '.join(LEVELS)}")
        name = request.path_params["logger"]
        self._check_name(name)
        changed = sorted({name, *(each for each in _names() if each.startswith(f"{name}."))})
        now_ms = self._clock.now_ms()
        for each in changed:
            _logger(each).setLevel(level)
            self._modified_ms[each] = now_ms
        if request.query_params.get("scope", "worker").lower() == "cluster":
            return Response(status_code=204)
        return JSONResponse(changed)

    def _check_name(self, name: str) -> None:
        if name in _names():
            return
        if len(name) > NAME_CHARACTERS_MAX or name.count(".") >= NAME_PARTS_MAX:
            limits = f"{NAME_CHARACTERS_MAX} characters and {NAME_PARTS_MAX} parts"
            raise ServiceError(400, f"The name of a logger has at most {limits}")
        if self._invented >= INVENTED_MAX:
            raise ServiceError(400, f"This worker does not have {INVENTED_MAX} loggers that clients named")
        self._invented += 1

    def _describe(self, name: str) -> dict[str, Any]:
        level = _logger(name).getEffectiveLevel()
        word = next((word for word, least in LEVELS.items() if level >= least), "TRACE")
        return {"level": word, "last_modified": self._modified_ms.get(name)}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _names() -> list[str]:
    return [ROOT, *sorted(logging.root.manager.loggerDict)]
