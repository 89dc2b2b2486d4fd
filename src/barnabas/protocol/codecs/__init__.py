"""Codecs as modules, one for each API: `codecs.produce`, `codecs.fetch` and so on.

A source tree has none: an encoder or decoder is compiled when it is first used, which keeps the start short.
A wheel for one platform carries the hottest codecs, compiled to machine code. `writing` writes them, and
`make codecs` shows them.
"""
