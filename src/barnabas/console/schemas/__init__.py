"""Schemas: a client of schema registries, and bounded decoders of Avro and Protobuf."""
