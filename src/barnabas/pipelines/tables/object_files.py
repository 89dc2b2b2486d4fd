"""Files of a table in an object store: S3, Google Cloud Storage and Azure, through `obstore`.

`obstore` and `deltalake` are built on the same Rust library. So one set of options, with the same names,
opens the files of the tasks and Delta's log (ADR 45).

A writer uploads in parts, and its object appears when it is closed. A request whose answer is lost is sent
again: data files have names of their own, so a second upload writes the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipelines.tables.file_names import Found

if TYPE_CHECKING:
    from obstore.store import ObjectStore

CLIENT_OPTIONS: Final = frozenset({"allow_http", "allow_invalid_certificates", "connect_timeout", "timeout"})
"""Options of the connection, which may have the prefix of a store."""
FLAGS: Final = frozenset({"allow_http", "allow_invalid_certificates"})
PREFIXES: Final = {
    "s3": ("aws_",), "s3a": ("aws_",), "gs": ("google_",), "az": ("azure_",), "abfs": ("azure_",),
    "abfss": ("azure_",),
}  # fmt: skip
"""Schemes of URLs, and the prefixes of their stores' options."""
DELTA_ONLY: Final = ("aws_s3_locking_provider", "aws_s3_allow_unsafe_rename", "delta_dynamo_table_name")
UPLOAD_PART_BYTES: Final = 8 << 20
READ_BYTES: Final = 1 << 20
ICEBERG_NAMES: Final = {
    "aws_access_key_id": "s3.access-key-id",
    "aws_secret_access_key": "s3.secret-access-key",
    "aws_session_token": "s3.session-token",
    "aws_region": "s3.region",
    "aws_default_region": "s3.region",
    "aws_endpoint": "s3.endpoint",
    "aws_endpoint_url": "s3.endpoint",
    "azure_storage_account_name": "adls.account-name",
    "azure_storage_account_key": "adls.account-key",
    "azure_storage_sas_token": "adls.sas-token",
    "google_service_account": "gcs.service-account",
}
"""Names of the same options in pyiceberg."""


class UnknownOption(Exception):
    """An option that the store of a URL does not have. The message is for the user."""


class ObjectFiles:
    """Files below a URL of an object store."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._store = _opened(url, options)

    def open_output(self, path: str) -> Any:
        return _Upload(self._store, path)

    def open_input(self, path: str) -> Any:
        import obstore  # noqa: PLC0415 - an optional package

        return _Download(obstore.open_reader(self._store, path, buffer_size=READ_BYTES))

    def list(self) -> Iterator[Found]:
        import obstore  # noqa: PLC0415 - an optional package

        for chunk in obstore.list(self._store):
            for each in chunk:
                yield Found(each["path"], each["size"], round(each["last_modified"].timestamp() * 1_000))

    def remove(self, paths: Iterable[str]) -> None:
        import obstore  # noqa: PLC0415 - an optional package

        for path in paths:
            try:
                obstore.delete(self._store, path)
            except FileNotFoundError:
                continue


def for_iceberg(options: Mapping[str, str]) -> dict[str, str]:
    """Options of a store in the names of pyiceberg."""
    return {
        ICEBERG_NAMES[name.lower()]: value for name, value in options.items() if name.lower() in ICEBERG_NAMES
    }


def _opened(url: str, options: Mapping[str, str]) -> ObjectStore:
    from obstore.exceptions import BaseError  # noqa: PLC0415 - an optional package
    from obstore.store import from_url  # noqa: PLC0415 - an optional package

    scheme = url.partition(":")[0]
    config: dict[str, Any] = {}
    client: dict[str, Any] = {}
    for given, value in options.items():
        name = given.lower()
        prefix = next((each for each in PREFIXES[scheme] if name.startswith(each)), "")
        if (plain := name.removeprefix(prefix)) in CLIENT_OPTIONS:
            client[plain] = value.lower() == "true" if plain in FLAGS else value
        elif name in DELTA_ONLY:
            continue
        elif not prefix:
            wanted = " or ".join(f"{each}…" for each in PREFIXES[scheme])
            raise UnknownOption(f"storage has {given!r}, which {scheme}:// does not know; expected {wanted}")
        else:
            config[name] = value
    try:
        opened: Callable[..., ObjectStore] = from_url  # its types tell the stores apart by their options
        return opened(url, config=config, client_options=client)
    except BaseError as error:
        raise UnknownOption(f"storage: {str(error).partition(chr(10))[0]}") from None


class _Upload(io.RawIOBase):
    """Stream into a new object, which knows its position."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        import obstore  # noqa: PLC0415 - an optional package

        self._writer = obstore.open_writer(store, path, buffer_size=UPLOAD_PART_BYTES)
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._writer.write(data)
        self._position += size
        return size

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._writer.close()


class _Download(io.RawIOBase):
    """An object as a file that Arrow reads."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return bytes(self._reader.read(None if size < 0 else size))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        return int(self._reader.tell())
