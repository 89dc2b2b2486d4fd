"""Every message version that kio has too: the same fields, the same bytes, the same values.

kio's classes are generated from Apache Kafka's own schemas, so agreement with it is agreement
with Kafka, without having written the expectation ourselves.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import uuid
from functools import cache
from random import Random
from typing import Any

import kio.index
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import is_optional
from kio.static.constants import EntityType
from tests.unit.protocol.samples import (
    Versions,
    all_cases,
    by_class,
    class_id,
    in_kio,
    kio_name,
    naming,
    random_message,
)

from barnabas.core.ids import ZERO_UUID
from barnabas.protocol.schema.declarations import FRESH
from barnabas.protocol.schema.message import Message

EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


MESSAGES = by_class(case for case in all_cases() if in_kio(case))


@cache
def kio_class(cls: type[Message], version: int) -> Any:
    name, kind = kio_name(cls)
    load: Any = kio.index.load_entity_schema  # its overloads want a literal kind
    return load(name, version, kind)


RENAMED_SINCE_KIO = {"TxnOffsetCommitRequest.generation_id_or_member_epoch": "generation_id"}
"""Kafka 4.4 renamed the field after groups got epochs."""


def plain(value: Any) -> Any:
    """A value of kio's in the form that ours has."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(milliseconds=1)
    if isinstance(value, dt.datetime):
        return (value - EPOCH) // dt.timedelta(milliseconds=1)
    return getattr(value, "value", value)  # error codes are an enum there


def assert_same(ours: Any, theirs: Any, version: int) -> None:
    fields = [field for field in ours.__schema__.fields if version in field.versions]
    their_names = [field.name for field in dataclasses.fields(theirs)]
    assert len(fields) == len(their_names)
    for field, their_name in zip(fields, their_names, strict=True):
        mine, other = getattr(ours, field.name), getattr(theirs, their_name)
        if field.kind.message is not None:
            if mine is None:
                assert other is None or other == type(other)()
            else:
                assert_same(mine, other, version)
        elif isinstance(mine, list) and mine and isinstance(mine[0], Message):
            assert len(mine) == len(other)
            for one, another in zip(mine, other, strict=True):
                assert_same(one, another, version)
        elif field.kind.name == "uuid" and mine == ZERO_UUID:
            assert other is None or other.int == 0
        elif field.kind.name == "array" and field.kind.element.name == "uuid":
            assert [bytes(16) if each is None else each.bytes for each in other] == mine
        else:
            assert plain(other) == mine


@pytest.mark.parametrize("message", MESSAGES, ids=class_id)
@settings(max_examples=8, deadline=None, database=None)
@given(seed=st.integers(0, 2**32), size=st.integers(0, 3))
def test_bytes_and_values_agree_with_kio(message: Versions, seed: int, size: int) -> None:
    cls, versions = message
    for version in versions:
        with naming(version):
            assert_bytes_and_values_agree(random_message(cls, version, Random(seed), size), version)


def assert_bytes_and_values_agree(message: Message, version: int) -> None:
    cls = type(message)
    encoded = message.encode(version)

    theirs, size_read = entity_reader(kio_class(cls, version))(encoded, 0)
    assert size_read == len(encoded)
    assert_same(message, theirs, version)

    written = io.BytesIO()
    entity_writer(kio_class(cls, version))(written, theirs)
    assert written.getvalue() == encoded
    assert cls.decode(written.getvalue(), version) == (message, len(encoded))


def assert_same_schema(ours: type[Message], theirs: Any, version: int) -> None:
    fields = [field for field in ours.__schema__.fields if version in field.versions]
    their_fields = dataclasses.fields(theirs)
    names = [RENAMED_SINCE_KIO.get(f"{ours.__name__}.{field.name}", field.name) for field in fields]
    assert [name.removesuffix("_ms") for name in names] == [
        field.name.removesuffix("_ms") for field in their_fields
    ]
    for field, other in zip(fields, their_fields, strict=True):
        assert field.tag == other.metadata.get("tag"), field
        nullable = version in field.nullable
        kafka_type = other.metadata.get("kafka_type", "")
        if field.tag is None and kafka_type != "uuid" and not kafka_type.startswith("datetime"):
            assert nullable == is_optional(other), field
        if (
            other.default is not dataclasses.MISSING
            and field.default is not FRESH
            and field.kind.message is None
        ):
            expected = plain(other.default)
            if field.kind.name == "uuid":
                expected = expected or ZERO_UUID
            if kafka_type.startswith("datetime") and expected is None:
                expected = -1
            assert field.default == expected, field


@pytest.mark.parametrize("message", MESSAGES, ids=class_id)
def test_the_declaration_agrees_with_kio(message: Versions) -> None:
    cls, versions = message
    for version in versions:
        with naming(version):
            assert_same_schema(cls, kio_class(cls, version), version)


def test_every_version_that_kio_has_is_declared() -> None:
    known = {kio_name(cls): cls for cls, _ in all_cases()}
    two_phase_commit = {
        ("init_producer_id", EntityType.request, 6),
        ("init_producer_id", EntityType.response, 6),
    }
    missing = {
        (name, kind, version)
        for name, versions in schema_name_map.items()
        for version, kinds in versions.items()
        for kind in kinds
        if (name, kind) in known and version not in known[name, kind].supported_versions()
    }
    assert missing == two_phase_commit
