"""The fuzzer: requests and bytes that no client sends, and judges of what they do (docs/FUZZING.md).

Two machines share the list of planted bugs. The first drives decoders and readers with bytes (`targets`,
`byte_loop`, `guided`). The second draws sequences of requests for a broker in a process of its own
(`values`, `steps`, `sequence`), while judges watch it (`judges`). `run` is the command, `hunt` plants bugs.
"""
