from __future__ import annotations

from tests.support.zookeeper import fresh_chroot, shared_zookeeper_server, zookeeper_server_directory

__all__ = ["fresh_chroot", "shared_zookeeper_server", "zookeeper_server_directory"]
