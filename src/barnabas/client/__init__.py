"""Outbound connections: the channel that brokers also use between themselves, and small clients on top.

`session` is the protocol of one connection without the connection, over `frames`; `channel` moves its bytes
under asyncio, `blocking` on a plain socket, for the Spark connector, which imports nothing of asyncio.
`cluster_state` knows the whole cluster, and says in `steps` who is asked what and (by `retries`) when again;
`transaction_steps` is a transaction, said likewise. `cluster_client` does what they say under asyncio.
`admin`, `producer` and `consumer` are what the command line needs, no more.
"""
