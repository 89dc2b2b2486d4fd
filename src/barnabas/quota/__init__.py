"""How much each client may have: bytes, time of the broker, changes to topics, new connections.

A request over its quota is carried out and answered at once; the answer names the time for which the
connection will then not be read (KIP-219). Where nobody has set a quota, a request pays for one comparison.
"""
