"""Consumer: the asyncio shell around `core` and `client.membership`.

- `consumer`: the public class. `engine`: its parts, its background tasks, rebalances.
- `coordination`: the task that drives the membership.
- `fetching`: the requests of `core.fetch_plans`.
- `position_updates`: OffsetFetch, ListOffsets, OffsetForLeaderEpoch.
- `commits`: OffsetCommit and OffsetFetch.
- `offset_queries`: questions of the application about offsets.
- `listener`, `deserializing`: what applications bring.
"""
