"""What it takes to reach a cluster, in a module that imports no more than that takes to say."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.client.security_settings import SecuritySettings
from barnabas.core.endpoints import Endpoint


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """It travels to the executors."""

    bootstrap: tuple[Endpoint, ...]
    client_id: str = "pyspark-barnabas"
    request_timeout_ms: float = 30_000
    retry_timeout_ms: float = 60_000
    security: SecuritySettings = field(default_factory=SecuritySettings)

    @property
    def servers(self) -> str:
        return ",".join(map(str, self.bootstrap))
