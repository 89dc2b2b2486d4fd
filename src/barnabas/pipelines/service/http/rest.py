"""Kafka Connect's REST interface for pipelines.

Paths, bodies and codes are Connect's, so that its tools work. Additional fields hold values that Connect
lacks (delivery, progress), and one additional path: `/connectors/{name}/graph`. Gaps: Connect's plugins do
not load, there is one worker, and a pipeline is one task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from barnabas import __version__
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.errors import KafkaError
from barnabas.network.http.json_body import read_json
from barnabas.pipelines.service.errors import ServiceError
from barnabas.pipelines.service.http.connect_status import connector_info, connector_status, shown_config
from barnabas.pipelines.service.http.plugin_info import config_keys, plugin_list, validate_config
from barnabas.pipelines.service.http.rest_loggers import Loggers
from barnabas.pipelines.service.metrics import render_metrics
from barnabas.pipelines.service.service import PipelineService
from barnabas.pipelines.service.store import Target
from barnabas.pipelines.spec.graph import graph_of

Handler = Callable[[Request], Awaitable[Response]]


BODY_BYTES_MAX: Final = 2 * 1024 * 1024
"""The record that keeps a configuration is smaller."""
ENTRIES_MAX: Final = 10_000
"""Settings of a connector, or offsets of a change."""


class Rest:
    def __init__(self, service: PipelineService, cluster_id: str, clock: Clock | None = None) -> None:
        self._service = service
        self._cluster_id = cluster_id
        self._loggers = Loggers(clock or SystemClock())

    def application(self) -> Starlette:
        service, one = self._service, "/connectors/{name}"
        rows: tuple[tuple[str, str, Handler], ...] = (
            ("GET", "/", self.root),
            ("GET", "/health", self.health),
            ("GET", "/metrics", self.metrics),
            ("GET", "/connectors", self.listing),
            ("POST", "/connectors", self.create),
            ("GET", one, _named(lambda name: connector_info(service, name))),
            ("DELETE", one, self.delete),
            ("GET", f"{one}/config", _named(lambda name: shown_config(service, name))),
            ("PUT", f"{one}/config", self.put_config),
            ("PATCH", f"{one}/config", self.patch_config),
            ("GET", f"{one}/status", _named(lambda name: connector_status(service, name))),
            ("POST", f"{one}/restart", self.restart),
            ("PUT", f"{one}/pause", self._aiming_at(Target.PAUSED, 202)),
            ("PUT", f"{one}/resume", self._aiming_at(Target.RUNNING, 202)),
            ("PUT", f"{one}/stop", self._aiming_at(Target.STOPPED, 204)),
            ("GET", f"{one}/tasks", _named(self._tasks)),
            (
                "GET",
                f"{one}/tasks-config",
                _named(lambda name: {f"{name}-0": shown_config(service, name)}),
            ),
            ("GET", f"{one}/tasks/{{task:int}}/status", self.task_status),
            ("POST", f"{one}/tasks/{{task:int}}/restart", self.task_restart),
            ("GET", f"{one}/graph", _named(lambda name: graph_of(service.spec(name)).to_document())),
            ("GET", f"{one}/topics", _named(lambda name: {name: {"topics": service.topics(name)}})),
            ("PUT", f"{one}/topics/reset", self.topics_reset),
            ("GET", f"{one}/offsets", self.offsets),
            ("PATCH", f"{one}/offsets", self.patch_offsets),
            ("DELETE", f"{one}/offsets", self.delete_offsets),
            ("GET", "/connector-plugins", self.plugins),
            ("GET", "/connector-plugins/{plugin}/config", self.plugin_config),
            ("PUT", "/connector-plugins/{plugin}/config/validate", self.validate),
            ("GET", "/admin/loggers", self._loggers.listing),
            ("GET", "/admin/loggers/{logger}", self._loggers.one),
            ("PUT", "/admin/loggers/{logger}", self._loggers.change),
        )
        routes = [Route(path, handler, methods=[method]) for method, path, handler in rows]
        handlers: Any = {ServiceError: _service_error, HTTPException: _http_error, KafkaError: _kafka_error}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def root(self, _: Request) -> Response:
        return JSONResponse({"version": __version__, "commit": "", "kafka_cluster_id": self._cluster_id})

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "healthy", "message": "Worker has completed startup and is ready."})

    async def metrics(self, _: Request) -> Response:
        return PlainTextResponse(
            render_metrics(self._service.supervisor), media_type="text/plain; version=0.0.4"
        )

    async def listing(self, request: Request) -> Response:
        wanted = request.query_params.getlist("expand")
        if not wanted:
            return JSONResponse(self._service.names())
        makers: dict[str, Callable[[str], dict[str, Any]]] = {
            "status": lambda name: connector_status(self._service, name),
            "info": lambda name: connector_info(self._service, name),
        }
        kinds = [kind for kind in makers if kind in wanted]
        return JSONResponse(
            {name: {kind: makers[kind](name) for kind in kinds} for name in self._service.names()}
        )

    async def create(self, request: Request) -> Response:
        body = await _body(request)
        name, config = body.get("name"), body.get("config")
        if not isinstance(name, str) or not isinstance(config, dict):
            raise ServiceError(400, "A new connector is {'name': text, 'config': {…}}")
        target = str(body.get("initial_state") or "RUNNING").upper()
        if target not in Target.__members__:
            raise ServiceError(400, f"initial_state is RUNNING, PAUSED or STOPPED, not {target}")
        stored = await self._service.create(name, config, Target[target])
        return JSONResponse(
            connector_info(self._service, stored.name), 201, headers={"Location": f"/connectors/{name}"}
        )

    async def delete(self, request: Request) -> Response:
        await self._service.delete(_name(request))
        return Response(status_code=204)

    async def put_config(self, request: Request) -> Response:
        stored, is_new = await self._service.configure(_name(request), await _body(request))
        return JSONResponse(connector_info(self._service, stored.name), 201 if is_new else 200)

    async def patch_config(self, request: Request) -> Response:
        stored = await self._service.patch(_name(request), await _body(request))
        return JSONResponse(connector_info(self._service, stored.name))

    async def restart(self, request: Request) -> Response:
        query = request.query_params
        only_failed = query.get("onlyFailed", "false") == "true"
        include_tasks = query.get("includeTasks", "false") == "true"
        self._service.restart(_name(request), only_failed=only_failed)
        if not include_tasks and not only_failed:
            return Response(status_code=204)
        return JSONResponse(connector_status(self._service, _name(request)), 202)

    def _aiming_at(self, target: Target, status_code: int) -> Handler:
        async def handle(request: Request) -> Response:
            await self._service.set_target(_name(request), target)
            return Response(status_code=status_code)

        return handle

    def _tasks(self, name: str) -> list[dict[str, Any]]:
        return [{"id": {"connector": name, "task": 0}, "config": shown_config(self._service, name)}]

    async def task_status(self, request: Request) -> Response:
        self._task(request)
        return JSONResponse(connector_status(self._service, _name(request))["tasks"][0])

    async def task_restart(self, request: Request) -> Response:
        self._task(request)
        self._service.restart(_name(request))
        return Response(status_code=204)

    async def topics_reset(self, request: Request) -> Response:
        self._service.stored(_name(request))
        return Response(status_code=202)

    async def offsets(self, request: Request) -> Response:
        return JSONResponse({"offsets": await self._service.offsets(_name(request))})

    async def patch_offsets(self, request: Request) -> Response:
        rows = (await _body(request)).get("offsets")
        if not isinstance(rows, list) or not rows:
            raise ServiceError(400, "Partitions / offsets need to be provided for an alter offsets request")
        await self._service.set_offsets(_name(request), rows)
        return JSONResponse({"message": "The offsets for this connector have been altered successfully"})

    async def delete_offsets(self, request: Request) -> Response:
        await self._service.reset_offsets(_name(request))
        return JSONResponse({"message": "The offsets for this connector have been reset successfully"})

    async def plugins(self, _: Request) -> Response:
        return JSONResponse(plugin_list(__version__))

    async def plugin_config(self, request: Request) -> Response:
        return JSONResponse(config_keys(request.path_params["plugin"]))

    async def validate(self, request: Request) -> Response:
        found = await asyncio.to_thread(validate_config, request.path_params["plugin"], await _body(request))
        return JSONResponse(found)

    def _task(self, request: Request) -> None:
        self._service.stored(_name(request))
        if request.path_params["task"] != 0:
            raise ServiceError(
                404, f"No status found for task {_name(request)}-{request.path_params['task']}"
            )


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _named(answer: Callable[[str], Any]) -> Handler:
    """Handler that answers from the connector name in the path."""

    async def handle(request: Request) -> Response:
        return JSONResponse(answer(_name(request)))

    return handle


async def _body(request: Request) -> dict[str, Any]:
    """The document, which is small enough to be read and checked in one turn of the loop."""
    raw = await request.body()
    if len(raw) > BODY_BYTES_MAX:
        raise ServiceError(413, f"The body has more than {BODY_BYTES_MAX} bytes")
    try:
        found = read_json(raw)
    except ValueError as error:
        raise ServiceError(400, f"The body is not JSON: {error}") from None
    except RecursionError:
        raise ServiceError(400, "The body is JSON that is nested too deeply") from None
    if not isinstance(found, dict):
        raise ServiceError(422, "The body is JSON, but not an object")
    inner = (len(value) for value in found.values() if isinstance(value, dict | list))
    if len(found) + sum(inner) > ENTRIES_MAX:
        raise ServiceError(413, f"The body has more than {ENTRIES_MAX} settings")
    return found


def _error(code: int, message: str) -> Response:
    return JSONResponse({"error_code": code, "message": message}, code)


async def _service_error(_: Request, error: ServiceError) -> Response:
    return _error(error.code, error.message)


async def _http_error(_: Request, error: HTTPException) -> Response:
    return _error(error.status_code, f"HTTP {error.status_code} {error.detail}")


async def _kafka_error(_: Request, error: KafkaError) -> Response:
    return _error(500, error.message)
