"""Bounded decoders: what they may make of bytes, and Avro."""
