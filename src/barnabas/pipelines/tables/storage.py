"""Files of a table, at a path or a URL with storage options.

Tasks write data files, and the driver lists and removes them, all through Arrow's file systems. A scheme is
a row in `FILE_SYSTEMS`: its function opens the file system for a URL and its options. Options may be
references to secrets (`${env:X}`), which are resolved when the file system is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from barnabas.pipelines.state.durable_files import LOCAL_SCHEME, local_path, sync_files
from barnabas.security.identity.secret_references import resolve

Opened = tuple[Any, str]
"""A file system of Arrow, and the path of the root in it."""


class UnknownScheme(Exception):
    """No file system for the scheme of a URL."""


class Found(NamedTuple):
    """A file below a root."""

    path: str
    """Relative to the root."""
    size: int
    changed_ms: int


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
        """Stream into a new file; missing directories are made."""
        files, root = self._open()
        whole = f"{root}/{path}"
        files.create_dir(whole.rpartition("/")[0], recursive=True)
        return files.open_output_stream(whole)

    def open_input(self, path: str) -> Any:
        files, root = self._open()
        return files.open_input_file(f"{root}/{path}")

    def list(self) -> Iterator[Found]:
        """All files below the root."""
        files, root = self._open()
        for each in files.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True)):
            if each.type == pafs.FileType.File:
                changed_ms = 0 if each.mtime_ns is None else each.mtime_ns // 1_000_000
                yield Found(each.path[len(root) :].lstrip("/"), each.size, changed_ms)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files; a missing file is no error."""
        files, root = self._open()
        for path in paths:
            with suppress(FileNotFoundError):
                files.delete_file(f"{root}/{path}")

    def sync(self, paths: Iterable[str]) -> None:
        """Sync files on a local disk, with their directories up to the root's parent."""
        root = local_path(self.root)
        if root is None:
            return
        files = [root / path for path in paths]
        inside = {each for file in files for each in file.parents if each.is_relative_to(root)}
        sync_files([*files, *inside])

    def check(self) -> None:
        """Raises UnknownScheme if no file system is known for the root."""
        self._open()

    def is_local(self) -> bool:
        return local_path(self.root) is not None

    def _open(self) -> Opened:
        scheme = urlsplit(self.root).scheme if not self.is_local() else LOCAL_SCHEME
        opened = FILE_SYSTEMS.get(scheme)
        if opened is None:
            known = ", ".join(sorted(FILE_SYSTEMS))
            raise UnknownScheme(f"there is no file system for {scheme}://; there are {known}")
        return opened(self.root, self.resolved_options)


def _open_local(root: str, _: Mapping[str, str]) -> Opened:
    path = local_path(root)
    assert path is not None
    return pafs.LocalFileSystem(), str(path)


FILE_SYSTEMS: dict[str, Callable[[str, Mapping[str, str]], Opened]] = {LOCAL_SCHEME: _open_local}
"""Function that opens the file system of a scheme."""
