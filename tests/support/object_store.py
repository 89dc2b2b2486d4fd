"""A local S3 server (moto) in a process of its own, which can lose answers to what it has carried out.

It has its own process because `deltalake` keeps Python's lock while it waits for some answers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BUCKET = "lake"
KEY, SECRET = "reader", "of-the-lake"
RULE, LOST, ADDRESS = "rule.json", "lost.txt", "address.txt"


class ObjectStore:
    """Server of one bucket, as tests see it."""

    def __init__(self, endpoint: str, directory: Path) -> None:
        self.endpoint = endpoint
        self._directory = directory

    @property
    def options(self) -> dict[str, str]:
        """Options of `storage` in a spec."""
        return {
            "aws_endpoint": self.endpoint,
            "aws_region": "us-east-1",
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_allow_http": "true",
        }

    def read(self, url: str) -> bytes:
        """The object at an `s3://` address."""
        from pyarrow.fs import S3FileSystem

        files = S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region="us-east-1",
            scheme="http",
            endpoint_override=self.endpoint.removeprefix("http://"),
        )
        with files.open_input_file(url.removeprefix("s3://")) as stream:
            return bytes(stream.read())

    def lose(self, path: str, count: int) -> None:
        """Lose the answers to the next `count` writes to paths that match; carry them out all the same.

        The writes of a large object are those of its parts, and the one that makes them an object.
        """
        partial = self._directory / "partial"
        partial.write_text(json.dumps({"path": path, "until": len(self.lost) + count}))
        partial.rename(self._directory / RULE)

    @property
    def lost(self) -> list[str]:
        found = self._directory / LOST
        return found.read_text().splitlines() if found.exists() else []


@contextmanager
def object_store(directory: Path) -> Iterator[ObjectStore]:
    for needed in ("moto", "flask_cors", "obstore"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    import httpx

    from tests.support.broker import REPOSITORY
    from tests.support.waiting import eventually

    directory.mkdir()
    with (directory / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.object_store", str(directory)],
            cwd=REPOSITORY, stdout=log, stderr=log,
        )  # fmt: skip
    address = directory / ADDRESS

    def listens() -> bool:
        assert process.poll() is None, (directory / "log.txt").read_text()
        return address.exists()

    try:
        eventually(listens, timeout_s=120)
        made = ObjectStore(address.read_text(), directory)
        httpx.put(f"{made.endpoint}/{BUCKET}", timeout=60).raise_for_status()
        yield made
    finally:
        process.kill()
        process.wait()


class _Application:
    """moto's application, with answers that are lost by a rule."""

    def __init__(self, application: Callable[..., Iterable[bytes]], directory: Path) -> None:
        self._application = application
        self._directory = directory

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        answer = self._application(environ, start_response)
        if environ["REQUEST_METHOD"] in ("PUT", "POST") and self._is_lost(environ["PATH_INFO"]):
            list(answer)
            environ["werkzeug.socket"].shutdown(2)
            raise ConnectionResetError("the answer is lost")
        return answer

    def _is_lost(self, path: str) -> bool:
        rule, lost = self._directory / RULE, self._directory / LOST
        if not rule.exists():
            return False
        wanted = json.loads(rule.read_text())
        before = len(lost.read_text().splitlines()) if lost.exists() else 0
        if before >= wanted["until"] or not re.search(wanted["path"], path):
            return False
        with lost.open("a") as file:
            file.write(path + "\n")
        return True


def main(directory: Path) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application = _Application(DomainDispatcherApplication(create_backend_app), directory)
    server = make_server("127.0.0.1", 0, application, threaded=True)
    partial = directory / "partial-address"
    partial.write_text(f"http://127.0.0.1:{server.port}")
    partial.rename(directory / ADDRESS)
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
