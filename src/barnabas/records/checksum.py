"""CRC-32C, the checksum of batches and of snapshots.

The package `crc32c` searches all installed packages for its own version when it is imported, which takes a
tenth of a broker's start. The library in it does not, so only that is loaded. If it cannot be found, the
package is imported instead.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

Checksum = Callable[..., int]
"""Takes bytes, and the checksum of those before them."""


def _load() -> Checksum:
    package = find_spec("crc32c")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        for suffix in EXTENSION_SUFFIXES:
            library = Path(folder, f"_crc32c{suffix}")
            if library.exists():
                return _from_library(str(library))
    from crc32c import crc32c as slowly_imported  # noqa: PLC0415

    checksum: Checksum = slowly_imported
    return checksum


def _from_library(path: str) -> Checksum:
    name = "crc32c._crc32c"
    spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, path))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    checksum: Checksum = module.crc32c
    return checksum


crc32c = _load()
