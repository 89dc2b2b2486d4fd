"""Everything that reads bytes or text from a peer, a client, a disk or a user: the targets of the fuzzer.

A target is a function of some bytes that raises one of its own errors or returns. Any other exception is a
finding, and so is an input that takes more than `SPENT_S_MAX` of the processor. Where there is an encoder,
the decoded value is encoded and decoded again: both must agree.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from barnabas.cluster.coordination.contract import Create, Delete, SetData, StoreDamaged
from barnabas.cluster.embedded import journal
from barnabas.cluster.embedded.tree import Tree
from barnabas.cluster.shared import messages as shared_messages
from barnabas.cluster.shared.fields import MalformedMessage as MalformedSharedMessage
from barnabas.cluster.shared.frames import FrameBuffer
from barnabas.cluster.znodes import acls as acl_znodes
from barnabas.cluster.znodes import brokers as broker_znodes
from barnabas.cluster.znodes import delegation_tokens as delegation_token_znodes
from barnabas.cluster.znodes import layout as znodes
from barnabas.cluster.znodes import notifications as notes
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.config.listeners import parse_listeners, parse_protocol_map
from barnabas.config.properties import read_properties
from barnabas.coordinator.group.offsets import records as offset_records
from barnabas.coordinator.group.state import records as group_records
from barnabas.coordinator.group.state.embedded_protocol import decode_assignment, decode_subscription
from barnabas.coordinator.transaction.state import records as transaction_records
from barnabas.core.errors import KafkaError
from barnabas.handlers import APIS
from barnabas.network.http import messages as http_messages
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import LargeMessage, MalformedMessage
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.schema.headers import request_header_fields
from barnabas.records.batch import iterate_batches
from barnabas.records.checksum import crc32c
from barnabas.records.legacy import iterate_any
from barnabas.records.record import iterate_records
from barnabas.records.validation import ValidationSettings, validate_produce
from barnabas.security.acl.authorizer import parse_super_users
from barnabas.security.credentials.scram_credential import ScramCredential, ScramMechanism
from barnabas.security.sasl.jaas import parse_jaas, parse_jaas_file
from barnabas.security.sasl.kerberos_names import KerberosNames, NoMatchingRule
from barnabas.security.sasl.oauthbearer import BearerAuthentication
from barnabas.security.sasl.outcome import AuthenticationRefused
from barnabas.security.sasl.plain import PlainAuthentication, PlainUsers
from barnabas.security.tls.principal_mapping import PrincipalMapping
from barnabas.storage.files import checkpoints
from barnabas.storage.producers.producer_snapshot import CorruptSnapshot, parse_snapshot, render_snapshot
from barnabas.storage.segment.sparse_index import CorruptIndex
from barnabas.storage.segment.transaction_index import parse_transaction_index
from tests.fuzz.judged_targets import judged_targets
from tests.fuzz.target import Target, of, of_text
from tests.fuzz.values import Values
from tests.fuzz.view_targets import view_targets
from tests.support import hostile, wire
from tests.support.slices import convert_down

ELEMENTS_MAX = 2_000
INFLATED_BYTES_MAX = 1 << 20


def request_target(key: ApiKey, version: int, random: Random) -> Target:
    """As the dispatcher reads it: the header, the bounded decoder, and in slices what is too large for it."""
    cls = request_class(key)
    bounded, sliced = cls.bounded_decoder(version), cls.sliced_decoder(version)

    def run(data: bytes) -> None:
        frame = memoryview(data)
        try:
            position = request_header_fields(frame)[4]
            message, end = bounded(frame, position)
        except MalformedMessage:
            return
        except LargeMessage:
            try:
                steps = sliced(frame, position, ELEMENTS_MAX)
                while True:
                    next(steps)
            except StopIteration as done:
                message, end = done.value
            except MalformedMessage:
                return
        assert end <= len(data), "read past the end"
        check_again(message, version)

    seeds = [hostile.frame_of(key, version, Values(random).message(cls, version)) for _ in range(4)]
    return Target(f"{key.name} v{version} request", run, seeds)


def response_target(key: ApiKey, version: int, random: Random) -> Target:
    """Brokers read each other's answers, and our own clients read them."""
    cls = response_class(key)
    decode = cls.decoder(version)

    def run(data: bytes) -> None:
        try:
            message, end = decode(memoryview(data), 0)
        except MalformedMessage:
            return
        assert end <= len(data), "read past the end"
        check_again(message, version)

    seeds = [Values(random).message(cls, version).encode(version) for _ in range(2)]
    return Target(f"{key.name} v{version} response", run, seeds)


def check_again(message: Any, version: int) -> None:
    """By what is written: a tagged struct of nothing but defaults is not."""
    written = message.encode(version)
    again, _ = type(message).decode(written, version)
    assert again.encode(version) == written, "written and read again it is another"


# Records


def read_records(data: bytes) -> None:
    for batch in iterate_batches(data):
        list(iterate_records(batch, INFLATED_BYTES_MAX))


def read_any_records(data: bytes) -> None:
    for _ in iterate_any(data):
        pass
    convert_down(data, 1)


def validate(settings: ValidationSettings) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        # The checksum is set right, so that the checks behind it have something to do.
        buffer = bytearray(data)
        if len(buffer) > 61:
            struct.pack_into(">qi", buffer, 0, 0, len(buffer) - 12)
            struct.pack_into(">I", buffer, 17, crc32c(memoryview(buffer)[21:]))
        validate_produce(buffer, settings=settings, now_ms=1_700_000_000_000)

    return run


def load_offsets(data: bytes) -> None:
    loader = offset_records.OffsetLoader({}, lambda *_: None)
    for batch in iterate_batches(data):
        for _ in loader.load(batch):
            pass


def batches(random: Random) -> list[bytes]:
    plain = wire.batch([b"one", None, b"three" * 20])
    return [plain, plain + plain, *(bytes(hostile._batch(random)) for _ in range(6))]


def coordinator_batches() -> list[bytes]:
    value = offset_records.OffsetAndMetadata(5, 1, "note", 1_000)
    key, encoded = offset_records.OffsetRecord("group", "topic", 3, value).encode()
    return [wire.batch(records=wire.record(encoded, key=key), count=1)]


# What is stored


def split(data: bytes) -> tuple[bytes, bytes | None]:
    """A key and a value, or a tombstone."""
    size = data[0] if data else 0
    return data[1 : 1 + size], data[1 + size :] or None


def joined(record: tuple[bytes, bytes | None]) -> bytes:
    return bytes((len(record[0]),)) + record[0] + (record[1] or b"")


RECORD_REFUSALS = (
    *(MalformedMessage, KafkaError, struct.error),
    *(group_records.UnknownRecord, transaction_records.UnknownRecord, ValueError),
)
"""A loader sets a record aside after any error, so these need no class of their own."""


def group_record_seeds(random: Random) -> Iterator[bytes]:
    for cls, value in group_records.VALUE_CLASSES.items():
        key = Values(random).message(cls, group_records._KEY_VERSIONS[cls])
        written = Values(random).message(value, group_records._WRITTEN_VERSIONS.get(value, 0))
        encoded = group_records.GroupRecord(key, written).encode()
        if len(encoded[0]) < 256:
            yield joined(encoded)


SHARED_REQUESTS: tuple[shared_messages.Request, ...] = (
    shared_messages.Hello(1, 0, 18_000, "p"),
    shared_messages.Write([Create("/a", b"b", True, True), SetData("/a", b"c", 1), Delete("/a")], False),
    shared_messages.SetWatches(7, ["/a"], ["/b"], ["/c"]),
    shared_messages.GetMany(["/a", "/b"]),
)


def replay_journal(data: bytes) -> None:
    journal.recover_log(data, None, Tree(), "d")


def znode_targets() -> Iterator[Target]:
    readers: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
        "cluster id": (znodes.ClusterIdZnode.decode, b'{"version":"1","id":"c"}'),
        "controller": (znodes.ControllerZnode.decode, b'{"version":1,"brokerid":1,"timestamp":"1"}'),
        "topic": (lambda data: znodes.TopicZnode.decode("t", data), b'{"version":3,"partitions":{"0":[1]}}'),
        "partition state": (
            lambda data: znodes.PartitionStateZnode.decode(data, 0),
            b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}',
        ),
        "config": (znodes.ConfigZnode.decode, b'{"version":1,"config":{"a":"b"}}'),
        "producer ids": (
            znodes.ProducerIdBlockZnode.decode,
            b'{"version":1,"broker":1,"block_start":"0","block_end":"9"}',
        ),
        "broker": (
            lambda data: broker_znodes.BrokerIdZnode.decode(1, data, 1),
            (
                b'{"version":5,"host":"h","port":1,"endpoints":["PLAINTEXT://h:1"],"timestamp":"1",'
                b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{}}'
            ),
        ),
        "acl": (
            acl_znodes.AclZnode.decode,
            b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}]}',
        ),
        "acl change": (acl_znodes.AclChangeZnode.decode_literal, b"Topic:t"),
        "prefixed acl change": (
            acl_znodes.AclChangeZnode.decode_prefixed,
            b'{"version":1,"resourceType":"TOPIC","name":"t","patternType":"PREFIXED"}',
        ),
        "config change": (notes.ConfigChangeZnode.decode, b'{"version":2,"entity_path":"topics/t"}'),
        "isr change": (
            notes.IsrChangeZnode.decode,
            b'{"version":1,"partitions":[{"topic":"t","partition":1}]}',
        ),
        "reassignment": (
            notes.ReassignPartitionsZnode.decode,
            b'{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[1]}]}',
        ),
        "token": (
            delegation_token_znodes.DelegationTokenZnode.decode,
            (
                b'{"version":3,"owner":"User%3Aa","renewers":["User%3Ab"],"issueTimestamp":1,'
                b'"maxTimestamp":2,"expiryTimestamp":3,"tokenId":"t"}'
            ),
        ),
    }
    for name, (read, seed) in readers.items():
        yield of(f"znode: {name}", read, seed, refusals=(MalformedZnode,))


# What users write


def read_head(data: bytes) -> None:
    head = http_messages.RequestParser().head(data)
    _ = head.body_bytes, head.header(b"host")


def read_chunks(data: bytes) -> None:
    parser = http_messages.RequestParser()
    parser.head(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    if data:
        parser.feed(data)
    parser.body()


def read_names(text: str) -> None:
    rule, _, principal = text.partition("\n")
    names = KerberosNames([rule], "REALM")
    if not set("(*+{") & set(
        rule
    ):  # a rule is an operator's own text: repetition costs the time that it costs
        names.short_name(principal)


def text_targets() -> Iterator[Target]:
    module = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b\\n";'
    yield of_text("JAAS", parse_jaas, module, "a.B optional k='v' // c\n x=1; C sufficient;")
    yield of_text("JAAS file", parse_jaas_file, f"KafkaServer {{ {module} }};", "/* */ A {};")
    yield of_text(
        "properties",
        read_properties,
        "a=b\n# c\nd: e\\\n  f\\u0041\n",
        refusals=(ValueError,),
    )
    yield of_text("protocol map", parse_protocol_map, "A:PLAINTEXT,B:SASL_SSL")
    yield of_text(
        "listeners",
        lambda text: parse_listeners("listeners", text, {"PLAINTEXT": "PLAINTEXT"}),
        "PLAINTEXT://127.0.0.1:9092,PLAINTEXT://[::1]:1",
    )
    yield of_text("super users", parse_super_users, "User:a;User:CN=b,O=c")
    yield of_text("principal mapping", PrincipalMapping.parse, "RULE:^CN=(.*?),.*$/$1/L,DEFAULT")
    yield of_text(
        "Kerberos names", read_names, "RULE:[1:$1@$0](a@B)s/@B//\na@B", refusals=(KafkaError, NoMatchingRule)
    )
    yield of_text(
        "SCRAM credential",
        lambda text: ScramCredential.decode(ScramMechanism.SHA_256, text),
        ScramCredential.derive(ScramMechanism.SHA_256, "p").encode(),
        refusals=(ValueError,),
        write=ScramCredential.encode,
    )
    yield from judged_targets()
    yield from spec_targets()


def spec_targets() -> Iterator[Target]:
    """Pipelines, where what they need is installed."""
    try:
        from barnabas.pipelines.spec import yaml_source
        from barnabas.pipelines.spec.sql import columns as sql_columns
        from barnabas.pipelines.spec.sql import ddl
        from barnabas.pipelines.spec.sql import text as sql_text
        from barnabas.pipelines.spec.sql.columns import Columns
    except ImportError:
        return
    columns = Columns({"a": "INT", "b": None})
    query = "SELECT a, count(*) AS n FROM input WHERE b > 'x' GROUP BY a"
    yield of_text("SQL text", sql_text.query_complaint, query, "WITH x AS (SELECT `a` FROM input) FROM x")
    yield of_text("SQL columns", lambda text: sql_columns.missing_in_query(text, columns), query)
    yield of_text("SQL expression", lambda text: sql_columns.missing_in_expression(text, columns), "a > 1")
    yield of_text(
        "DDL", ddl.schema_complaint, "id BIGINT NOT NULL, tags ARRAY<STRUCT<a: INT, b: MAP<STRING, DATE>>>"
    )
    yield of_text("DDL columns", ddl.columns_in, "id BIGINT, t STRUCT<a: INT>")
    yield of_text(
        "YAML",
        yaml_source.read_yaml,
        "name: p\nsource: {kafka: {topic: a}}\ntransforms:\n- sql: SELECT 1\n",
        "a: &x [1]\nb: *x\n",
        refusals=(yaml_source.UnreadableSpec,),
    )


def sasl_targets() -> Iterator[Target]:
    plain = PlainUsers({"a": "b"})

    def verify(token: str) -> tuple[str, int]:
        return token[:5], 1

    yield of(
        "PLAIN",
        lambda data: PlainAuthentication(plain).step(data),
        b"\0a\0b",
        refusals=(AuthenticationRefused,),
    )
    yield of(
        "OAUTHBEARER",
        lambda data: BearerAuthentication(verify).step(data),
        b"n,a=a,\x01auth=Bearer abc.def.ghi\x01\x01",
        refusals=(AuthenticationRefused,),
    )


def all_targets(random: Random) -> list[Target]:
    served = [(api.key, version) for api in APIS for version in api.versions]
    plain = ValidationSettings()
    compacted = ValidationSettings(compacted=True, compression_type="lz4")
    messages = [request_target(key, version, random) for key, version in served]
    messages += [response_target(key, version, random) for key, version in served]
    found = [
        of("records", read_records, *batches(random)),
        of("records of any format", read_any_records, wire.message_set_entry(b"v"), *batches(random)),
        of("produced records", validate(plain), *batches(random)),
        of("produced records, compacted", validate(compacted), *batches(random)),
        of("offsets", load_offsets, *coordinator_batches(), refusals=(KafkaError,)),
        of(
            "group record",
            lambda data: group_records.decode_record(*split(data)),
            *group_record_seeds(random),
            refusals=RECORD_REFUSALS,
        ),
        of(
            "transaction record",
            lambda data: transaction_records.decode_record(*split(data)),
            refusals=RECORD_REFUSALS,
        ),
        of(
            "subscription",
            decode_subscription,
            b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff",
            refusals=(MalformedMessage,),
        ),
        of("assignment", decode_assignment, b"\0\1\0\0\0\0\xff\xff\xff\xff", refusals=(MalformedMessage,)),
        of("journal", replay_journal, refusals=(StoreDamaged,)),
        of(
            "shared store: request",
            shared_messages.decode_request,
            *(shared_messages.encode_request(1, each) for each in SHARED_REQUESTS),
            refusals=(MalformedSharedMessage,),
            write=lambda found: shared_messages.encode_request(*found),
        ),
        of(
            "shared store: frames",
            lambda data: FrameBuffer(1_000).feed(data),
            b"\0\0\0\1a\0\0\0\2bc",
            refusals=(MalformedSharedMessage,),
        ),
        of(
            "offset checkpoint",
            checkpoints.parse_offsets,
            b"0\n1\nt 0 5\n",
            refusals=(checkpoints.CorruptCheckpoint,),
        ),
        of(
            "epoch checkpoint",
            checkpoints.parse_epochs,
            b"0\n1\n3 5\n",
            refusals=(checkpoints.CorruptCheckpoint,),
        ),
        of("producer snapshot", parse_snapshot, render_snapshot([]), refusals=(CorruptSnapshot,)),
        of(
            "transaction index",
            lambda data: parse_transaction_index(data, "f"),
            bytes(34),
            refusals=(CorruptIndex,),
        ),
        of(
            "HTTP head",
            read_head,
            b"GET /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n",
            b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
            refusals=(http_messages.RequestRefused,),
        ),
        of(
            "HTTP chunks",
            read_chunks,
            b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
            refusals=(http_messages.RequestRefused,),
        ),
        *znode_targets(),
        *sasl_targets(),
        *text_targets(),
        *view_targets(),
    ]
    return messages + [target if target.seeds else target._replace(seeds=[b""]) for target in found]
