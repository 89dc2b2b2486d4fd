from __future__ import annotations

from tests.support.zookeeper import shared_zookeeper_server, zookeeper_server_directory

__all__ = ["shared_zookeeper_server", "zookeeper_server_directory"]
