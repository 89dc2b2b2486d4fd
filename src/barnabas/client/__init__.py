"""Outbound connections: the channel that brokers also use between themselves, and small clients on top.

`channel` speaks requests and answers with one broker; `cluster_client` knows the whole cluster
and finds leaders; `admin`, `producer` and `consumer` are what the command line needs, no more.
"""
