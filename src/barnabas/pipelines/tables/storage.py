"""Files of a table, at a path or a URL with storage options.

Tasks write data files, and the driver lists and removes them. A scheme is a row in `FILES`: its function
opens the files below a URL, with the options. Options may be references to secrets (`${env:X}`), which are
resolved when the files are opened.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from barnabas.core.optional_dependencies import install_command
from barnabas.pipelines.state.durable_files import LOCAL_SCHEME, local_path, sync_files
from barnabas.pipelines.tables.file_names import Found
from barnabas.pipelines.tables.object_files import PREFIXES, ObjectFiles, UnknownOption
from barnabas.security.identity.secret_references import resolve


class UnknownScheme(Exception):
    """No files for the scheme of a URL, or not with its options. The message is for the user."""


class Files(Protocol):
    """Files below a root. Paths are relative to it."""

    def open_output(self, path: str) -> Any:
        """Stream into a new file; missing directories are made."""

    def open_input(self, path: str) -> Any: ...

    def list(self) -> Iterator[Found]:
        """All files below the root."""

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files; a missing file is no error."""


@dataclass(frozen=True, slots=True)
class Storage:
    root: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The root as a URL."""
        local = local_path(self.root)
        return self.root.rstrip("/") if local is None else local.as_uri()

    @property
    def resolved_options(self) -> dict[str, str]:
        return {name: str(resolve(value)) for name, value in self.options.items()}

    def open_output(self, path: str) -> Any:
        return self._open().open_output(path)

    def open_input(self, path: str) -> Any:
        return self._open().open_input(path)

    def list(self) -> Iterator[Found]:
        return self._open().list()

    def remove(self, paths: Iterable[str]) -> None:
        gone = list(paths)
        if gone:
            self._open().remove(gone)

    def sync(self, paths: Iterable[str]) -> None:
        """Sync files on a local disk, with their directories up to the root's parent."""
        root = local_path(self.root)
        if root is None:
            return
        files = [root / path for path in paths]
        inside = {each for file in files for each in file.parents if each.is_relative_to(root)}
        sync_files([*files, *inside])

    def check(self) -> None:
        """Raises UnknownScheme if the root cannot be opened: its scheme, an option, a missing package."""
        self._open()

    def is_local(self) -> bool:
        return local_path(self.root) is not None

    def _open(self) -> Files:
        scheme = urlsplit(self.root).scheme if not self.is_local() else LOCAL_SCHEME
        opened = FILES.get(scheme)
        if opened is None:
            known = ", ".join(sorted(FILES))
            raise UnknownScheme(f"there is no file system for {scheme}://; there are {known}")
        try:
            return opened(self.root, self.resolved_options)
        except UnknownOption as error:
            raise UnknownScheme(str(error)) from None
        except ModuleNotFoundError:
            raise UnknownScheme(
                f"{scheme}:// needs the package obstore: {install_command('objects')}"
            ) from None


class LocalFiles:
    def __init__(self, root: str, _: Mapping[str, str]) -> None:
        path = local_path(root)
        assert path is not None
        self._root = str(path)
        self._files = pafs.LocalFileSystem()

    def open_output(self, path: str) -> Any:
        whole = f"{self._root}/{path}"
        self._files.create_dir(whole.rpartition("/")[0], recursive=True)
        return self._files.open_output_stream(whole)

    def open_input(self, path: str) -> Any:
        return self._files.open_input_file(f"{self._root}/{path}")

    def list(self) -> Iterator[Found]:
        selector = pafs.FileSelector(self._root, recursive=True, allow_not_found=True)
        for each in self._files.get_file_info(selector):
            if each.type == pafs.FileType.File:
                changed_ms = 0 if each.mtime_ns is None else each.mtime_ns // 1_000_000
                yield Found(each.path[len(self._root) :].lstrip("/"), each.size, changed_ms)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                self._files.delete_file(f"{self._root}/{path}")


FILES: dict[str, Callable[[str, Mapping[str, str]], Files]] = {
    LOCAL_SCHEME: LocalFiles, **dict.fromkeys(PREFIXES, ObjectFiles),
}  # fmt: skip
"""Function that opens the files of a scheme."""

SIGNS: Final[Mapping[str, str]] = {"delta": "_delta_log/", "iceberg": "metadata/"}
"""Directory that tells a table of a format from any other directory."""


class NoTable(Exception):
    """There is no table of the format at the place. The message is for the user."""


def remove_table(kind: str, place: str) -> int:
    """Remove a table of a format; returns the number of its files."""
    storage = Storage(place)
    files = [each.path for each in storage.list()]
    if not any(path.startswith(SIGNS[kind]) for path in files):
        raise NoTable(f"there is no {kind} table at {place} as this machine sees it")
    # Data first: a removal that is cut off leaves a table, which another attempt removes.
    storage.remove(sorted(files, key=lambda path: path.startswith(SIGNS[kind])))
    local = local_path(place)
    if local is not None:
        shutil.rmtree(local, ignore_errors=True)
    return len(files)
