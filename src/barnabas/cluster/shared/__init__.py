"""Shared coordination store: the embedded store, served to the brokers of one machine over a unix socket.

- `fields`, `messages`, `frames`: the protocol, without I/O.
- `session_table`: which sessions live, without I/O.
- `server`, `peer`: the store's side.
- `session`, `link`: a broker's side.
- `notices`: the supervisor's word on processes that have ended.
- `unix_socket`: the private socket.
"""
