"""Drivers of all pipelines: the service hosts declarative ones, and driver processes run the others."""

from __future__ import annotations

import asyncio
from typing import Protocol

from barnabas.pipelines.service.supervisor import Drivers, Observer
from barnabas.pipelines.spec.model import PipelineSpec


class ClosingDrivers(Drivers, Protocol):
    async def close(self) -> None: ...


class RoutedDrivers:
    """Implements `supervisor.Drivers`."""

    def __init__(self, processes: ClosingDrivers, hosting: ClosingDrivers) -> None:
        self._processes = processes
        self._hosting = hosting

    def start(self, spec: PipelineSpec, generation: int, attempt: int, observer: Observer) -> None:
        drivers = self._processes if spec.project_file is None else self._hosting
        drivers.start(spec, generation, attempt, observer)

    def stop(self, name: str) -> None:
        # A pipeline may have changed its kind since it was started.
        self._processes.stop(name)
        self._hosting.stop(name)

    async def close(self) -> None:
        await asyncio.gather(self._processes.close(), self._hosting.close())
