"""Cost of a broker's codecs: microseconds for each encode and decode of the hot messages.

    PYTHONPATH=src python bench/protocol_codecs.py [--kio]

One topic, one partition, one kilobyte of records. `--kio` adds the reference library's figures.
"""

from __future__ import annotations

import argparse
import io
import time
import timeit

from barnabas.core.ids import Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import fetch, produce
from barnabas.protocol.schema.headers import encode_request, encode_response, read_request_header
from barnabas.protocol.schema.message import Message

TOPIC = "orders"
TOPIC_ID = Uuid(bytes(range(16)))
RECORDS = bytes(1024)


def produce_request() -> produce.ProduceRequest:
    partition = produce.PartitionProduceData(index=3, records=RECORDS)
    topic = produce.TopicProduceData(name=TOPIC, topic_id=TOPIC_ID, partition_data=[partition])
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response() -> produce.ProduceResponse:
    partition = produce.PartitionProduceResponse(index=3, error_code=0, base_offset=10**9, log_start_offset=0)
    topic = produce.TopicProduceResponse(name=TOPIC, topic_id=TOPIC_ID, partition_responses=[partition])
    return produce.ProduceResponse(responses=[topic])


def fetch_request() -> fetch.FetchRequest:
    partition = fetch.FetchPartition(partition=3, fetch_offset=10**9, partition_max_bytes=1 << 20)
    topic = fetch.FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])
    return fetch.FetchRequest(max_wait_ms=500, min_bytes=1, session_epoch=0, topics=[topic])


def fetch_response() -> fetch.FetchResponse:
    partition = fetch.PartitionData(
        partition_index=3, high_watermark=10**9, last_stable_offset=10**9, log_start_offset=0, records=RECORDS
    )
    topic = fetch.FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])
    return fetch.FetchResponse(responses=[topic])


def microseconds(statement: str, names: dict[str, object]) -> float:
    timer = timeit.Timer(statement, timer=time.process_time, globals=names)
    rounds = 20_000
    return min(timer.repeat(5, rounds)) / rounds * 1e6


def measure(message: Message, version: int, *, with_kio: bool) -> None:
    cls = type(message)
    frame = memoryview(bytearray(message.encode(version)))
    names: dict[str, object] = {
        "encode": cls.bounded_encoder(version),
        "decode": cls.bounded_decoder(version),
        "message": message,
        "frame": frame,
    }
    row = f"{cls.__name__:16} v{version:<3} decode {microseconds('decode(frame, 0)', names):5.2f}"
    row += f"  encode {microseconds('encode(message, [], bytearray())', names):5.2f}"
    if with_kio:
        row += kio_figures(cls, version, bytes(frame))
    print(row)


def kio_figures(cls: type[Message], version: int, frame: bytes) -> str:
    import kio.index
    from kio.serial import entity_reader, entity_writer
    from kio.static.constants import EntityType

    assert cls.__schema__.api is not None
    kind = EntityType.request if cls.__name__.endswith("Request") else EntityType.response
    try:
        other = kio.index.load_entity_schema(cls.__schema__.api.name.lower(), version, kind)
    except kio.index.UnknownEntity:
        return "   kio: has no such version"
    read, write = entity_reader(other), entity_writer(other)
    names = {"read": read, "write": write, "frame": frame, "message": read(frame, 0)[0], "sink": io.BytesIO}
    decoded = microseconds("read(frame, 0)", names)
    return f"   kio: decode {decoded:5.2f}  encode {microseconds('write(sink(), message)', names):5.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kio", action="store_true")
    arguments = parser.parse_args()
    cases: list[tuple[Message, tuple[int, ...]]] = [
        (produce_request(), (0, 3, 8, 9, 10, 12, 13)),
        (produce_response(), (0, 3, 8, 9, 10, 12, 13)),
        (fetch_request(), (4, 11, 12, 13, 16, 17, 18)),
        (fetch_response(), (4, 11, 12, 13, 16, 17, 18)),
    ]
    for message, versions in cases:
        for version in versions:
            measure(message, version, with_kio=arguments.kio)
    parts = encode_request(ApiKey.PRODUCE, 9, 7, "client-1", produce_request())
    names: dict[str, object] = {
        "frame": memoryview(b"".join(bytes(part) for part in parts if not hasattr(part, "file"))),
        "read_request_header": read_request_header,
        "encode_response": encode_response,
        "build": produce_response,
        "message": produce_response(),
    }
    print(f"read_request_header          {microseconds('read_request_header(frame)', names):5.2f}")
    print(f"build ProduceResponse        {microseconds('build()', names):5.2f}")
    print(f"encode_response(Produce v9)  {microseconds('encode_response(7, message, 9)', names):5.2f}")


if __name__ == "__main__":
    main()
