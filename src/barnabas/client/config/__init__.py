"""Settings of the client library: Kafka's property names, from a dict, keywords, a file or the environment.

- `common`, `producer_keys`, `consumer_keys`, `admin_keys`: one row for each key (name, type, default, bounds,
  a sentence). The rows render the tables of `docs/CLIENT.md`.
- `sources`: how the sources combine. Keywords win over the dict, the dict over the environment, the
  environment over the file.
- `settings`: the values in force, with types: `ProducerSettings`, `ConsumerSettings`, `AdminSettings`. An
  attribute has the name of its key, with `_` for each dot.

A new setting is a row and an attribute with the same name; `tests/unit/client/test_client_config.py` compares
them.
"""
