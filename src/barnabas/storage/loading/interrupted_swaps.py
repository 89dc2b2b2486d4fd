"""Interrupted swaps: steps of compaction that a crash left unfinished in the directory of a log.

`.deleted` and `.cleaned` files are removed. A `.swap` file replaces the segments that it was made from.
"""

from __future__ import annotations

from barnabas.core.files import Files
from barnabas.storage.files.names import CLEANED, DELETED, LOG, SEGMENT_SUFFIXES, SWAP, parse_segment_file
from barnabas.storage.segment.batch_scan import iterate_valid_batches


def finish_interrupted_swaps(files: Files, directory: str) -> dict[str, int]:
    """Remove unfinished files and complete the swaps. Returns the sizes of the remaining files, by name."""
    sizes = _sizes(files, directory)
    deleted = [name for name in sizes if name.endswith(DELETED)]
    cleaned = [name for name in sizes if name.endswith(CLEANED)]
    first_cleaned = min((_offset_of(name) for name in cleaned), default=None)
    swaps = [name for name in sizes if name.endswith(SWAP)]
    if not (deleted or cleaned or swaps):
        return sizes
    # A `.swap` at or above a `.cleaned` file belongs to a rewrite that did not finish.
    invalid = [name for name in swaps if first_cleaned is not None and _offset_of(name) >= first_cleaned]
    for name in (*deleted, *invalid, *cleaned):
        files.unlink(f"{directory}/{name}")
    _complete_swaps(files, directory, sizes, [name for name in swaps if name not in invalid])
    return _sizes(files, directory)


def _sizes(files: Files, directory: str) -> dict[str, int]:
    return {entry.name: entry.size_bytes for entry in files.list(directory) if not entry.is_directory}


def _complete_swaps(files: Files, directory: str, sizes: dict[str, int], swaps: list[str]) -> None:
    replaced: list[tuple[int, int]] = []
    for name in swaps:
        if name.endswith(LOG + SWAP):
            base_offset = _offset_of(name)
            end_offset = base_offset + 1
            # Even an empty one replaces the segment of the same base offset, with all its indexes.
            for _, batch in iterate_valid_batches(files.open(f"{directory}/{name}"), sizes[name]):
                end_offset = max(end_offset, batch.last_offset + 1)
            replaced.append((base_offset, end_offset))
    for name in sizes:
        found = parse_segment_file(name)
        if found is None or found[1] not in SEGMENT_SUFFIXES:
            continue
        if any(start <= found[0] < end for start, end in replaced):
            files.unlink(f"{directory}/{name}")
    for name in swaps:
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    if swaps:
        files.sync_directory(directory)


def _offset_of(name: str) -> int:
    try:
        return int(name.partition(".")[0])
    except ValueError:
        return -1
