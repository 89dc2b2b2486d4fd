"""Connection settings of a cluster, in a module with few imports: processes that only plan import it too."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.client.security.settings import SecuritySettings
from barnabas.core.addressing.endpoints import Endpoint


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Bootstrap addresses, timeouts and security; pickled for the executors."""

    bootstrap: tuple[Endpoint, ...]
    client_id: str = "pyspark-barnabas"
    request_timeout_ms: float = 30_000
    retry_timeout_ms: float = 60_000
    security: SecuritySettings = field(default_factory=SecuritySettings)

    @property
    def servers(self) -> str:
        return ",".join(map(str, self.bootstrap))
