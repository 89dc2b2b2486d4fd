"""The five codecs of a record batch, and inflation that stops at a cap.

A producer's compressed bytes are untrusted: 1 GiB of zeros is 33 KB of zstd. So this module never calls a
one-shot `decompress` whose output size the sender decides. Each codec inflates in steps bounded by the
remaining allowance, and the first step is bounded by the bytes received. Past the cap InvalidRecord is
raised, which clients do not retry. Bytes that the codec cannot read, a truncated stream included, raise
CorruptMessage.

The wire format follows Kafka's Java client. Snappy is in the block framing of xerial's snappy-java
(librdkafka may send the raw form; both are read). LZ4 is the LZ4 frame format with independent blocks of 64
KB. Gzip members and zstd frames may follow one another.

Third-party codec libraries are imported on first use, because a broker whose topics keep the producer's
compression needs none of them.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from barnabas.core.errors import CorruptMessage, InvalidRecord, MessageTooLarge
from barnabas.records.varint import Buffer

FIRST_STEP_BYTES: Final = 64 * 1024
"""Smallest step of inflation; a small batch needs one."""

EXPECTED_RATIO: Final = 4
"""A first step of this many times the input holds most batches whole."""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_BYTES: Final = 32 * 1024
SNAPPY_RATIO_MAX: Final = 64
"""A snappy element turns at least 2 bytes into at most 64, so a larger claim is false."""

COMPRESSED_AT_ONCE_BYTES: Final = 256 * 1024
"""Input of a step of `compress_within`."""

JOINED_AT_ONCE_BYTES: Final = 1024 * 1024
"""Inflated bytes that may be in memory twice."""

LZ4_FAST_LEVEL: Final = 9
"""Kafka's default level, and the name it gives to the fast compressor."""
LZ4_FLAGS_AT: Final = 4
LZ4_BLOCKS_INDEPENDENT: Final = 0x20
"""Kafka's own clients read no other frames, so none may enter a log."""


class Codec(enum.IntEnum):
    """The codec in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODECS: Final = tuple(Codec)
CODEC_BY_NAME: Final = {codec.name.lower(): codec for codec in Codec} | {"uncompressed": Codec.NONE}
"""Names as `compression.type` spells them."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` as `codec` writes it; `level` means what Kafka's `compression.<codec>.level` means."""
    return _COMPRESSORS[codec](data, level)


def compress_within(codec: Codec, data: Buffer, level: int | None, limit_bytes: int) -> bytes:
    """The same; MESSAGE_TOO_LARGE if it is more than `limit_bytes`.

    Gzip, snappy and LZ4 stop there. A few hundred kilobytes of zstd inflate to 32 MB that they cannot
    compress, and all of that would be in memory several times.
    """
    compress_pieces = _IN_PIECES.get(codec)
    pieces = (
        iter((compress(codec, data, level),)) if compress_pieces is None else compress_pieces(data, level)
    )
    found = bytearray()
    for piece in pieces:
        if len(found) + len(piece) > limit_bytes:
            raise MessageTooLarge(f"The records take more than {limit_bytes} bytes as {codec.name.lower()}")
        found += piece
    return bytes(found)


def decompress(codec: Codec, data: Buffer, limit_bytes: int) -> bytes | bytearray:
    """The inflated bytes, at most `limit_bytes` of them.

    Raises InvalidRecord when there would be more, CorruptMessage when `data` is not a
    complete stream of `codec`.
    """
    return _DECOMPRESSORS[codec](data, limit_bytes)


def _too_large(limit_bytes: int) -> InvalidRecord:
    return InvalidRecord(f"Compressed records inflate to more than {limit_bytes} bytes")


def _first_step_bytes(data: Buffer, room_bytes: int) -> int:
    return min(room_bytes, max(FIRST_STEP_BYTES, EXPECTED_RATIO * len(data)))


# --- none ---


def _joined(pieces: list[bytes]) -> bytes | bytearray:
    """The pieces in one. Of many bytes, each piece is freed when it is copied, and the list is empty then."""
    if len(pieces) == 1:
        return pieces[0]
    if sum(map(len, pieces)) <= JOINED_AT_ONCE_BYTES:
        return b"".join(pieces)
    pieces.reverse()
    found = bytearray()
    while pieces:
        found += pieces.pop()
    return found


def _cut(data: Buffer) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(view), COMPRESSED_AT_ONCE_BYTES):
        yield view[start : start + COMPRESSED_AT_ONCE_BYTES]


def _store(data: Buffer, level: int | None) -> bytes:  # noqa: ARG001
    return bytes(data)


def _restore(data: Buffer, limit_bytes: int) -> bytes:
    if len(data) > limit_bytes:
        raise _too_large(limit_bytes)
    return bytes(data)


# --- gzip ---


_GZIP_WINDOW_BITS: Final = 31
"""zlib's spelling of a 32 KB window inside a gzip header and trailer."""


def _gzip(data: Buffer, level: int | None) -> bytes:
    deflate = zlib.compressobj(-1 if level is None else level, 8, _GZIP_WINDOW_BITS)
    return deflate.compress(data) + deflate.flush()


def _gzip_pieces(data: Buffer, level: int | None) -> Iterator[Buffer]:
    deflate = zlib.compressobj(-1 if level is None else level, 8, _GZIP_WINDOW_BITS)
    for piece in _cut(data):
        yield deflate.compress(piece)
    yield deflate.flush()


def _gunzip(data: Buffer, limit_bytes: int) -> bytes | bytearray:
    pieces: list[bytes] = []
    room_bytes = limit_bytes + 1
    rest: Buffer = data
    while True:
        inflate = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            piece = inflate.decompress(rest, room_bytes)
        except zlib.error as error:
            raise CorruptMessage(f"Gzip cannot be inflated: {error}") from None
        pieces.append(piece)
        room_bytes -= len(piece)
        if room_bytes <= 0:
            raise _too_large(limit_bytes)
        if not inflate.eof:
            raise CorruptMessage("A gzip stream ends early")
        rest = inflate.unused_data
        # As in Java, bytes after a member that do not begin another are ignored.
        if rest[:2] != b"\x1f\x8b":
            return _joined(pieces)


# --- snappy ---


def _snappy(data: Buffer, level: int | None) -> bytes:
    out = bytearray()
    for piece in _snappy_pieces(data, level):
        out += piece
    return bytes(out)


def _snappy_pieces(data: Buffer, level: int | None) -> Iterator[Buffer]:  # noqa: ARG001
    from cramjam import snappy  # noqa: PLC0415

    yield XERIAL_HEADER
    view = memoryview(data)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = memoryview(snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        yield len(block).to_bytes(4, "big")
        yield block


def _unsnappy(data: Buffer, limit_bytes: int) -> bytes | bytearray:
    view = memoryview(data)
    if bytes(view[:8]) != XERIAL_MAGIC:
        return bytes(_unsnappy_block(view, limit_bytes, limit_bytes))
    out = bytearray()
    for block in snappy_blocks(data, limit_bytes):
        out += block
    return out


def snappy_blocks(data: Buffer, limit_bytes: int) -> Iterator[memoryview]:
    """The inflated blocks; the raw form is one block."""
    view = memoryview(data)
    if bytes(view[:8]) != XERIAL_MAGIC:
        yield _unsnappy_block(view, limit_bytes, limit_bytes)
        return
    room_bytes = limit_bytes
    position = 0
    end = len(view)
    while position < end:
        if bytes(view[position : position + 8]) == XERIAL_MAGIC:  # streams may be concatenated
            position += len(XERIAL_HEADER)
            if position > end:
                raise CorruptMessage("A snappy stream ends early")
            continue
        start = position + 4
        position = start + int.from_bytes(view[position:start], "big")
        if position > end or start > end:
            raise CorruptMessage("A snappy stream ends early")
        block = _unsnappy_block(view[start:position], room_bytes, limit_bytes)
        room_bytes -= len(block)
        yield block


def _unsnappy_block(block: memoryview, room_bytes: int, limit_bytes: int) -> memoryview:
    from cramjam import DecompressionError, snappy  # noqa: PLC0415

    try:
        inflated_bytes = snappy.decompress_raw_len(block)
        if inflated_bytes > SNAPPY_RATIO_MAX * len(block):
            raise CorruptMessage("A snappy block claims more than it can hold")
        if inflated_bytes > room_bytes:
            raise _too_large(limit_bytes)
        return memoryview(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise CorruptMessage(f"Snappy cannot be inflated: {error}") from None


# --- LZ4 ---


def _lz4(data: Buffer, level: int | None) -> bytes:
    from lz4 import frame  # noqa: PLC0415

    return bytes(
        frame.compress(
            data,
            compression_level=_lz4_level(level),
            block_size=frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
    )


def _lz4_pieces(data: Buffer, level: int | None) -> Iterator[Buffer]:
    from lz4 import frame  # noqa: PLC0415

    compressor = frame.LZ4FrameCompressor(
        compression_level=_lz4_level(level), block_size=frame.BLOCKSIZE_MAX64KB, block_linked=False
    )
    yield bytes(compressor.begin())
    for piece in _cut(data):
        yield bytes(compressor.compress(piece))
    yield bytes(compressor.flush())


def _lz4_level(level: int | None) -> int:
    return 0 if level is None or level == LZ4_FAST_LEVEL else max(3, min(level, 12))


def check_lz4_blocks(data: Buffer) -> None:
    if len(data) > LZ4_FLAGS_AT and not data[LZ4_FLAGS_AT] & LZ4_BLOCKS_INDEPENDENT:
        raise CorruptMessage("An LZ4 frame has blocks that depend on each other")


def _unlz4(data: Buffer, limit_bytes: int) -> bytes | bytearray:
    from lz4.frame import LZ4FrameDecompressor  # noqa: PLC0415

    check_lz4_blocks(data)
    inflate = LZ4FrameDecompressor()
    pieces: list[bytes] = []
    total_bytes = 0
    rest: Buffer = data
    try:
        while not inflate.eof:
            room_bytes = limit_bytes + 1 - total_bytes
            step_bytes = min(room_bytes, total_bytes) or _first_step_bytes(data, room_bytes)
            piece = inflate.decompress(rest, step_bytes)
            pieces.append(piece)
            total_bytes += len(piece)
            if total_bytes > limit_bytes:
                raise _too_large(limit_bytes)
            if inflate.needs_input and not inflate.eof:
                raise CorruptMessage("An LZ4 frame ends early")
            rest = b""  # the decompressor keeps its unread input
    except RuntimeError as error:
        raise CorruptMessage(f"LZ4 cannot be inflated: {error}") from None
    return _joined(pieces)


# --- zstd ---


_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC: Final = 0x184D2A5
_ZSTD_RLE_BLOCK: Final = 1


def _zstd(data: Buffer, level: int | None) -> bytes:
    from zstandard import ZstdCompressor  # noqa: PLC0415

    return bytes(ZstdCompressor(level=3 if level is None else level).compress(data))


def _unzstd(data: Buffer, limit_bytes: int) -> bytes | bytearray:
    from zstandard import ZstdDecompressor, ZstdError  # noqa: PLC0415

    check_zstd_frames_are_whole(memoryview(data))
    pieces: list[bytes] = []
    total_bytes = 0
    try:
        with ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            while True:
                room_bytes = limit_bytes + 1 - total_bytes
                step_bytes = min(room_bytes, total_bytes) or _first_step_bytes(data, room_bytes)
                piece = reader.read(step_bytes)
                total_bytes += len(piece)
                if total_bytes > limit_bytes:
                    raise _too_large(limit_bytes)
                pieces.append(piece)
                if len(piece) < step_bytes:
                    break
    except ZstdError as error:
        raise CorruptMessage(f"Zstd cannot be inflated: {error}") from None
    return _joined(pieces)


def check_zstd_frames_are_whole(view: memoryview) -> None:
    """Walk frame and block headers to the end of `view`.

    The stream reader treats the end of its input as the end of the data, so a truncated stream would pass
    unnoticed. Java consumers would fail on it.
    """
    position = 0
    end = len(view)
    while position < end:
        position = _end_of_zstd_frame(view, position)
    if position != end or end == 0:
        raise CorruptMessage("A zstd frame ends early")


def _end_of_zstd_frame(view: memoryview, position: int) -> int:
    magic = int.from_bytes(view[position : position + 4], "little")
    if magic >> 4 == _ZSTD_SKIPPABLE_MAGIC:
        return position + 8 + int.from_bytes(view[position + 4 : position + 8], "little")
    if magic != _ZSTD_MAGIC or position + 5 > len(view):
        raise CorruptMessage("A zstd frame does not begin with its magic number")
    descriptor = view[position + 4]
    is_single_segment = descriptor >> 5 & 1
    content_size_bytes = (is_single_segment, 2, 4, 8)[descriptor >> 6]
    dictionary_id_bytes = (0, 1, 2, 4)[descriptor & 3]
    position += 5 + (1 - is_single_segment) + dictionary_id_bytes + content_size_bytes
    while True:
        if position + 3 > len(view):
            raise CorruptMessage("A zstd frame ends early")
        block = int.from_bytes(view[position : position + 3], "little")
        position += 3 + (1 if block >> 1 & 3 == _ZSTD_RLE_BLOCK else block >> 3)
        if block & 1:
            return position + (4 if descriptor & 4 else 0)


_COMPRESSORS: Final[tuple[Callable[[Buffer, int | None], bytes], ...]] = (_store, _gzip, _snappy, _lz4, _zstd)
_IN_PIECES: Final[dict[Codec, Callable[[Buffer, int | None], Iterator[Buffer]]]] = {
    Codec.GZIP: _gzip_pieces,
    Codec.SNAPPY: _snappy_pieces,
    Codec.LZ4: _lz4_pieces,
}
_DECOMPRESSORS: Final[tuple[Callable[[Buffer, int], bytes | bytearray], ...]] = (
    _restore, _gunzip, _unsnappy, _unlz4, _unzstd,
)  # fmt: skip
assert len(_COMPRESSORS) == len(_DECOMPRESSORS) == len(CODECS)
