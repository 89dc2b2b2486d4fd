"""Tests of `make test`, and tests that only `make test-all` runs.

`make test` takes five minutes on two cores and runs a part of everything: all unit and contract tests, most
scenarios, each Python client, a cluster, one pipeline on Spark, a short chaos run. `make test-all` also runs
the tests that take long, need another language's tools, or repeat a test from another side. CI runs both. A
test belongs to the second set by its place, listed here, or by the marker `slow`.
"""

from __future__ import annotations

from collections.abc import Sequence

REST = (
    "tests/contract/tables/",
    "tests/differential/",
    "tests/clients/behaviour/",
    "tests/clients/cluster/",
    "tests/clients/secured/",
    "tests/clients/test_controlled.py",
    "tests/clients/test_groups_confluent.py",
    "tests/clients/test_kafka_python_1.py",
    "tests/clients/test_programs.py",
    "tests/clients/test_python_groups.py",
    "tests/fuzz/test_fuzz.py::test_a_planted_bug_is_caught[a negative rebalance timeout",
    "tests/scenario/bad_input/test_floods.py",
    "tests/scenario/cli/test_tutorial.py",
    "tests/scenario/cluster/",
    "tests/scenario/console/test_beside_brokers.py",
    "tests/scenario/console/test_browser.py",
    "tests/scenario/console/test_browser_changes.py",
    "tests/scenario/console/test_browser_figures.py",
    "tests/scenario/console/test_browser_schemas.py",
    "tests/scenario/console/test_clusters.py",
    "tests/scenario/console/test_mcp.py",
    "tests/scenario/console/test_bounds.py",
    "tests/scenario/console/test_operating.py",
    "tests/scenario/console/test_pipelines.py",
    "tests/scenario/console/test_proofs.py",
    "tests/scenario/console/test_schemas.py",
    "tests/scenario/console/test_security_pages.py",
    "tests/scenario/durability/",
    "tests/scenario/groups/test_groups_survive.py",
    "tests/scenario/interop/",
    "tests/scenario/pages/",
    "tests/scenario/pipelines/test_connect_rest.py",
    "tests/scenario/pipelines/test_databases.py",
    "tests/scenario/security/test_brokers_among_each_other.py",
    "tests/scenario/security/test_own_clients.py::test_a_blocking_connection_outlives_its_session",
    "tests/scenario/security/test_own_clients.py::test_a_channel_outlives_its_session",
    "tests/scenario/security/test_tls_clients.py",
    "tests/scenario/site/",
    "tests/scenario/transactions/test_exactly_once.py",
    "tests/scenario/zookeeper/test_commands.py",
    "tests/scenario/zookeeper/test_session.py::test_a_restarted_server_knows_the_session",
    "tests/simulation/test_simulation.py::test_what_was_found_stays_mended[seed-1]",
    "tests/simulation/test_simulation.py::test_what_was_found_stays_mended[seed-8",
    "tests/spark/",
)

SLICE = (
    "tests/contract/tables/test_exactly_once.py::test_of_two_drivers_with_the_same_batch_one_commits_it",
    "tests/contract/tables/test_exactly_once.py::test_a_foreign_writer",
    "tests/contract/tables/test_exactly_once.py::test_a_lost_answer",
    "tests/scenario/pipelines/test_databases.py::test_a_batch_counts_once_and_the_last_of_a_key_wins[sqlite]",
    "tests/scenario/pipelines/test_databases.py::test_a_tombstone_deletes_the_row_of_its_key[sqlite]",
    "tests/scenario/cluster/test_chaos.py::test_nothing_is_lost_in_a_short_storm",
    "tests/scenario/cluster/test_operating.py",
    "tests/scenario/pages/test_watching_pages.py::test_the_commands",
    "tests/scenario/interop/test_kafka_dump_log.py",
    "tests/scenario/zookeeper/test_commands.py::test_a_missing_pyspark_is_named",
    "tests/spark/pipelines/test_updates.py",
)
"""Of those places, what is shown all the same."""


SOURCE_ONLY = (
    "tests/scenario/broker/test_long_validation.py",
    "tests/scenario/replication/test_following.py::test_the_high_watermark_of_a_follower_is_the_smaller",
    "tests/unit/handlers/test_cluster.py::test_a_handler_opens_with_its_key_and_versions",
    "tests/unit/handlers/test_leader_hints.py::test_leaders_are_named_also_when_another_partition_waited",
    "tests/unit/handlers/test_old_consumers.py",
    "tests/unit/handlers/test_old_producers.py",
    "tests/unit/node/test_periodic_tasks.py",
    "tests/unit/quota/test_client_quotas.py::test_invented_client_ids_do_not_fill_the_memory",
    "tests/unit/records/test_checksum.py::test_a_package_without_the_library_is_imported",
    "tests/unit/records/test_validation.py::test_a_bomb_is_stopped_where_records_are_",
    "tests/unit/records/test_validation.py::test_more_records_than_can_be_read_are_to_be_split",
    "tests/unit/replication/leader/test_follower_fetches.py::test_a_waiting_fetch_looks_at_a_marked_partition_once",
    "tests/unit/requests/test_request_budget.py",
    "tests/unit/storage/test_threaded_append.py::test_every_error_after_the_write_is_reported",
    "tests/unit/storage/cleaner/test_log_cleaner.py::test_the_filthiest_log_comes_first",
)
"""Tests that reach into modules, or hand over stand-ins: compiled code takes neither, so `make test-compiled`
leaves them out."""


LONGEST = ("tests/scenario/cluster/test_chaos.py",)
"""Files that take longest. They begin first, so that no worker runs one alone at the end."""

LATE = ("tests/spark/pipelines/test_updates.py",)
"""Files that take long too, and leave a JVM to their worker. They begin after two thirds of the others."""


def is_rest(node_id: str) -> bool:
    return node_id.startswith(REST) and not node_id.startswith(SLICE)


def is_all_rest(place: str) -> bool:
    """Whether a file, or a folder that ends in a slash, has no test that `make test` runs."""
    return is_rest(place) and not any(each.startswith(place) for each in SLICE)


def mixed(files: Sequence[str]) -> list[str]:
    """The order in which workers take files: the longest first, then unit tests evenly among the others.

    Unit tests compute and the others mostly wait, so that a mixture keeps all cores busy until the end.
    """
    first = [file for file in files if file in LONGEST]
    others = [file for file in files if file not in LONGEST]
    computing = [file for file in others if file.startswith("tests/unit/")]
    waiting = [file for file in others if not file.startswith("tests/unit/")]
    place = {file: (at + 1) / len(group) for group in (waiting, computing) for at, file in enumerate(group)}
    place |= {file: 2 / 3 for file in others if file in LATE}
    return first + sorted(waiting + computing, key=place.__getitem__)
