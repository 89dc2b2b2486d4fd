"""Read-only MCP endpoint of the console, for agents: `tools` asks the cluster, `endpoint` speaks JSON-RPC.

The Model Context Protocol's package would bring a dozen others, and a server with sessions and streams. An
endpoint that only answers needs four methods over one POST, which is what this is.
"""
