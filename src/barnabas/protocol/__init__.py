"""Kafka's wire protocol, from bytes to messages and back; no I/O.

Read `schema` for what a message is, `messages.produce` for an example, `codegen` for how a
declaration becomes code, `headers` for what stands around a body.
"""
