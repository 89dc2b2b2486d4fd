"""Request path from a frame to its handler and back.

The dispatcher decodes a request, checks its rights and calls the handler. The context gives a handler the
client, the broker's parts and the means to respond. `handlers` has a file for each API.
"""
