"""Keys and values of records, deserialized as the settings say."""

from __future__ import annotations

from barnabas.client.config.settings import ConsumerSettings
from barnabas.client.consumer.core.handing_out import AnyRecord, Deserialize
from barnabas.client.extensions.serializers import deserializer_of


def deserialize_with(settings: ConsumerSettings) -> Deserialize | None:
    """Function of a record; None when key and value stay bytes."""
    key = deserializer_of(settings.key_deserializer, "key.deserializer")
    value = deserializer_of(settings.value_deserializer, "value.deserializer")
    if key is None and value is None:
        return None

    def deserialize(record: AnyRecord) -> AnyRecord:
        topic, headers = record.topic, record.headers
        return record._replace(
            key=record.key if key is None else key.deserialize(topic, record.key, headers),
            value=record.value if value is None else value.deserialize(topic, record.value, headers),
        )

    return deserialize
