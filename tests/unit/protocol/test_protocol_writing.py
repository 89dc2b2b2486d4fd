"""Codecs written to modules behave like those compiled at first use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from tests.unit.protocol.samples import random_message

from barnabas.core.regions import FileRegion
from barnabas.protocol import codecs
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.codecs.writing import HOT, module_text, write_modules
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.schema.declarations import Pace, Part
from barnabas.protocol.schema.decoding import compile_decoder
from barnabas.protocol.schema.encoding import compile_encoder
from barnabas.protocol.schema.written_codecs import codec_name, written_codec


def bytes_of(encode: Any, message: Any) -> bytes:
    parts: list[Part] = []
    parts.append(encode(message, parts, bytearray()))
    return b"".join(part.read() if isinstance(part, FileRegion) else part for part in parts)


def written_module(key: ApiKey) -> ModuleType:
    module = ModuleType("written")
    exec(module_text(key), vars(module))
    return module


@pytest.mark.parametrize("key", HOT, ids=lambda key: key.name)
def test_a_written_module_does_what_is_made_at_first_use(key: ApiKey) -> None:
    module = written_module(key)
    request, response = request_class(key), response_class(key)
    random = Random(key)
    for version in range(HOT[key], request.supported_versions()[-1] + 1):
        decode = getattr(module, codec_name("decode", request, version, Pace.BOUNDED))
        encode = getattr(module, codec_name("encode", response, version, Pace.BOUNDED))
        for size in range(4):
            asked = random_message(request, version, random, size)
            frame = memoryview(asked.encode(version))
            assert decode(frame, 0) == compile_decoder(request, version, Pace.BOUNDED)(frame, 0)
            answer = random_message(response, version, random, size)
            made = compile_encoder(response, version, Pace.BOUNDED)
            assert bytes_of(encode, answer) == bytes_of(made, answer)


@pytest.mark.parametrize("key", HOT, ids=lambda key: key.name)
def test_a_written_module_asks_in_the_newest_version(key: ApiKey) -> None:
    module = written_module(key)
    request, response = request_class(key), response_class(key)
    random = Random(key)
    version = request.supported_versions()[-1]
    encode = getattr(module, codec_name("encode", request, version, Pace.WHOLE))
    decode = getattr(module, codec_name("decode", response, version, Pace.WHOLE))
    for size in range(4):
        asked = random_message(request, version, random, size)
        assert bytes_of(encode, asked) == asked.encode(version)
        answer = random_message(response, version, random, size)
        frame = memoryview(answer.encode(version))
        assert decode(frame, 0) == compile_decoder(response, version, Pace.WHOLE)(frame, 0)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in [name for name in sys.modules if name.startswith(f"{codecs.__name__}.")]:
        monkeypatch.delitem(sys.modules, name)  # this may be the compiled wheel, which has some
    before = set(sys.modules)
    monkeypatch.setattr(codecs, "__path__", [str(tmp_path)])
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_what_was_written_at_build_time_is_found(written: Path) -> None:
    assert written_codec("decode", ProduceRequest, 9, Pace.BOUNDED) is None
    write_modules(written)
    found = written_codec("decode", ProduceRequest, 9, Pace.BOUNDED)
    assert found is not None
    assert found.__name__ == "decode_ProduceRequest_v9_bounded"
    assert written_codec("decode", ProduceRequest, 9, Pace.SLICED) is None


def test_a_written_module_that_cannot_be_imported_is_no_missing_one(written: Path) -> None:
    (written / "produce.py").write_text("import nothing_of_this_name")
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        written_codec("decode", ProduceRequest, 9, Pace.BOUNDED)


def test_none_lies_in_the_source() -> None:
    source = Path(__file__).parents[3] / "src" / "barnabas" / "protocol" / "codecs"
    assert sorted(file.name for file in source.iterdir() if file.suffix == ".py") == [
        "__init__.py",
        "writing.py",
    ]
