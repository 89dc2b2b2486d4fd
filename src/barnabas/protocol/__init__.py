"""Kafka's wire protocol, from bytes to messages and back; no I/O.

`schema.message` explains what a message is, `messages.produce` is an example. `schema.codegen` turns a
declaration into code, and `schema.headers` encodes the header before a body.
"""
