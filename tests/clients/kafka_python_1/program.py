"""kafka-python 1.x speaking the protocols of old brokers: message formats 0 and 1, Fetch and Produce 0-2.

Run with the library's directory and the bootstrap address as arguments; prints one JSON line per
(protocol, codec): what was read back from the middle of what was written.
"""

import json
import sys

sys.path.insert(0, sys.argv[1])

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

for version in ((0, 8, 2), (0, 9), (0, 10), (0, 11)):
    for codec in (None, "gzip"):
        topic = TopicPartition("old-{}-{}".format(".".join(map(str, version)), codec), 0)
        producer = KafkaProducer(bootstrap_servers=sys.argv[2], api_version=version, compression_type=codec)
        sent = [
            producer.send(topic.topic, key=b"k%d" % i, value=b"v%d" % i if i % 7 else None, partition=0)
            for i in range(20)
        ]
        offsets = [each.get(20).offset for each in sent]
        producer.close()
        consumer = KafkaConsumer(
            bootstrap_servers=sys.argv[2], api_version=version, consumer_timeout_ms=20_000, group_id=None
        )
        consumer.assign([topic])
        consumer.seek(topic, 5)
        read = []
        for message in consumer:
            value = None if message.value is None else message.value.decode()
            read.append([message.offset, message.key.decode(), value])
            if message.offset == offsets[-1]:
                break
        consumer.close()
        committed = None
        if version != (0, 11):
            # 0.8.1 has its offsets in the coordination store, later ones in a topic.
            by_group = (0, 8, 1) if version == (0, 8, 2) else version
            member = KafkaConsumer(
                bootstrap_servers=sys.argv[2],
                api_version=by_group,
                group_id=f"old-{version}",
                enable_auto_commit=False,
            )
            member.assign([topic])
            member.commit({topic: OffsetAndMetadata(7, "")})
            committed = member.committed(topic)
            member.close()
        print(
            json.dumps(
                {"version": version, "codec": codec, "offsets": offsets, "read": read, "committed": committed}
            ),
            flush=True,
        )
