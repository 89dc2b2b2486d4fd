"""Synchronous admin client: each method of the asyncio one, run on the clients' loop thread.

    with Admin("127.0.0.1:9092") as admin:
        admin.create_topics([NewTopic("orders", partitions=3)])

The methods and their arguments are those of `client.admin.admin.Admin`, without `await`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Self

from barnabas.client.admin import admin as asynchronous
from barnabas.client.sync.loop_thread import SHARED


class Admin:
    def __init__(
        self, config: str | Sequence[str] | Mapping[str, Any] | None = None, /, **options: Any
    ) -> None:
        """Options are those of the asyncio admin client."""

        async def make() -> asynchronous.Admin:
            return asynchronous.Admin(config, **options)

        self._runner = SHARED.runner()
        self._admin = self._runner.run(make())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._runner.run(self._admin.close())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = None if name.startswith("_") else getattr(asynchronous.Admin, name, None)
        if not iscoroutinefunction(method):
            raise AttributeError(f"the admin client has no method {name}")
        bound = getattr(self._admin, name)

        @wraps(method)
        def call(*arguments: Any, **keywords: Any) -> Any:
            return self._runner.run(bound(*arguments, **keywords))

        return call

    def __dir__(self) -> list[str]:
        return [name for name in dir(asynchronous.Admin) if not name.startswith("_")]
