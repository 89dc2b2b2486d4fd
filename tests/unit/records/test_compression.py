"""Codecs: round trips, other people's streams, and bombs."""

from __future__ import annotations

import contextlib
import gzip
import random
import subprocess
import sys
import tracemalloc

import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka import codec as aiokafka_codec
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.errors import CorruptMessage, InvalidRecord, KafkaError
from barnabas.records.compression import CODEC_BY_NAME, Codec, compress, decompress

MIB = 1 << 20
COMPRESSING = [codec for codec in Codec if codec]
TEXT = b" ".join(str(number).encode() for number in range(60_000))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", b"barnabas" * 10, TEXT, bytes(3 * MIB)], ids=len)
def test_what_is_compressed_inflates_to_the_same(codec: Codec, data: bytes) -> None:
    packed = compress(codec, memoryview(bytearray(data)))
    assert decompress(codec, memoryview(bytearray(packed)), len(data)) == data


@given(st.sampled_from(Codec), st.binary(max_size=2_000))
def test_any_bytes_survive_any_codec(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 17)), (Codec.ZSTD, (-5, 19))]
)
def test_a_higher_level_packs_tighter(codec: Codec, levels: tuple[int, int]) -> None:
    randomness = random.Random(1)
    words = [randomness.randbytes(randomness.randint(2, 9)) for _ in range(500)]
    text = b" ".join(randomness.choices(words, k=20_000))
    low, high = (compress(codec, text, level) for level in levels)
    assert len(high) < len(low)
    assert decompress(codec, high, len(text)) == text


ORACLES = {
    Codec.GZIP: (aiokafka_codec.gzip_encode, aiokafka_codec.gzip_decode),
    Codec.SNAPPY: (aiokafka_codec.snappy_encode, aiokafka_codec.snappy_decode),
    Codec.LZ4: (aiokafka_codec.lz4_encode, aiokafka_codec.lz4_decode),
    Codec.ZSTD: (aiokafka_codec.zstd_encode, aiokafka_codec.zstd_decode),
}


@pytest.mark.parametrize("codec", COMPRESSING)
def test_aiokafka_reads_ours_and_we_read_theirs(codec: Codec) -> None:
    encode, decode = ORACLES[codec]
    assert bytes(decode(compress(codec, TEXT))) == TEXT
    assert decompress(codec, bytes(encode(TEXT)), len(TEXT)) == TEXT


def test_raw_snappy_is_read_as_well_as_framed() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, raw, len(TEXT)) == TEXT
    assert compress(Codec.SNAPPY, TEXT).startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")


def test_streams_that_follow_one_another_are_one() -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.ZSTD):
        packed = compress(codec, b"first ") + compress(codec, b"second")
        assert decompress(codec, packed, 12) == b"first second"
        with pytest.raises(InvalidRecord):
            decompress(codec, packed, 11)


def test_zstd_without_a_content_size_and_with_skippable_frames_is_read() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT)
    skippable = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    assert decompress(Codec.ZSTD, skippable + packed, len(TEXT)) == TEXT


def test_lz4_with_every_option_of_its_frame_is_read() -> None:
    packed = lz4.frame.compress(TEXT, block_linked=False, content_checksum=True, block_checksum=True)
    assert decompress(Codec.LZ4, packed, len(TEXT)) == TEXT


def test_lz4_blocks_that_depend_on_each_other_are_refused_as_java_does() -> None:
    packed = lz4.frame.compress(TEXT, block_linked=True)
    with pytest.raises(CorruptMessage, match="depend"):
        decompress(Codec.LZ4, packed, len(TEXT))


def test_our_lz4_frame_is_of_the_kind_that_java_reads() -> None:
    information = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))
    assert not information["block_linked"]
    assert information["block_size"] == 64 * 1024
    assert not information["content_size"]


def test_bytes_after_a_gzip_member_are_ignored_as_java_does() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"x") + b"\x00\x00", 1) == b"x"


BOMB_BYTES = 1 << 30


def _bomb(codec: Codec) -> bytes:
    """Something small or at least cheap to make that inflates to a gigabyte of zeros."""
    piece = bytes(16 * MIB)
    count = BOMB_BYTES // len(piece)
    if codec == Codec.GZIP:
        return compress(codec, piece) * count
    if codec == Codec.SNAPPY:
        framed = compress(codec, piece)
        return framed[:16] + framed[16:] * count
    if codec == Codec.ZSTD:
        return compress(codec, piece) * count
    with lz4.frame.LZ4FrameCompressor(
        block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False
    ) as compressor:
        return b"".join(
            [compressor.begin(), *(compressor.compress(piece) for _ in range(count)), compressor.flush()]
        )


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_is_stopped_at_the_cap(codec: Codec) -> None:
    bomb = _bomb(codec)
    cap = 4 * MIB
    decompress(codec, compress(codec, b"import the library first"), 100)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecord, match="inflate"):
            decompress(codec, memoryview(bomb), cap)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Twice the cap for a buffer that grows, and the input that a decompressor keeps for itself.
    assert peak < 2 * cap + len(bomb) + MIB


def test_a_single_zstd_frame_of_a_gigabyte_is_stopped_whatever_it_declares() -> None:
    piece = bytes(16 * MIB)
    for size in (-1, BOMB_BYTES):
        compressor = zstandard.ZstdCompressor().compressobj(size=size)
        bomb = (
            b"".join([compressor.compress(piece) for _ in range(BOMB_BYTES // len(piece))])
            + compressor.flush()
        )
        assert len(bomb) < 200_000
        with pytest.raises(InvalidRecord, match="inflate"):
            decompress(Codec.ZSTD, bomb, 4 * MIB)


def test_a_snappy_block_cannot_claim_what_it_does_not_hold() -> None:
    claim = b"\xff\xff\xff\x7f" + bytes(20)
    with pytest.raises(CorruptMessage, match="claims"):
        decompress(Codec.SNAPPY, claim, 1 << 40)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_exactly_the_cap_is_allowed_and_one_byte_more_is_not(codec: Codec) -> None:
    for data in (TEXT, bytes(300_000)):
        packed = compress(codec, data)
        assert decompress(codec, packed, len(data)) == data
        with pytest.raises(InvalidRecord):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_stream_that_is_cut_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    for cut in (0, 1, 5, 17, len(packed) // 2, len(packed) - 1):
        if codec == Codec.SNAPPY and cut == 0:
            continue  # nothing at all is told apart only by the records that are missing
        with pytest.raises(CorruptMessage):
            decompress(codec, packed[:cut], len(TEXT))


@pytest.mark.parametrize("codec", COMPRESSING)
def test_mutated_streams_raise_only_errors_of_ours(codec: Codec) -> None:
    randomness = random.Random(codec)
    packed = compress(codec, TEXT[:5_000])
    for _ in range(400):
        mutated = bytearray(packed)
        for _ in range(randomness.randint(1, 4)):
            mutated[randomness.randrange(min(len(mutated), 200))] = randomness.randrange(256)
        with contextlib.suppress(KafkaError):
            decompress(codec, mutated, 10_000)


@given(st.sampled_from(COMPRESSING), st.binary(max_size=200))
def test_random_bytes_raise_only_errors_of_ours(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(KafkaError):
        assert len(decompress(codec, data, 1_000)) <= 1_000


def test_codecs_are_named_as_compression_type_names_them() -> None:
    assert set(CODEC_BY_NAME) == {"none", "uncompressed", "gzip", "snappy", "lz4", "zstd"}


def test_no_codec_library_is_imported_before_its_first_use() -> None:
    program = (
        "import sys, barnabas.records.validation\n"
        "print([name for name in ('cramjam', 'lz4', 'zstandard') if name in sys.modules])"
    )
    path = [entry for entry in sys.path if entry]
    environment = {"PYTHONPATH": ":".join(path)}
    found = subprocess.run(
        [sys.executable, "-S", "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
