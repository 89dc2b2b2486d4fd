"""`barnabas sql`: run a query over topics, by DuckDB."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from barnabas.cli.support.exit_codes import Failure, InvalidSettings, Unreachable, failure_for
from barnabas.cli.support.progress import Stages
from barnabas.cli.support.session import Bootstrap, bootstrap_option
from barnabas.client.config.consumer_keys import CONSUMER_KEYS
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.tables.sql import query_topics
from barnabas.core.errors import InvalidConfig, KafkaError, NetworkException
from barnabas.core.optional_dependencies import MissingExtra


@click.command()
@click.argument("query")
@click.option("--since", metavar="TIME", help="Read from this time on: 10m, 2h, or an ISO 8601 time.")
@click.option("--until", metavar="TIME", help="Read up to the first record of this time or later.")
@click.option("--committed", is_flag=True, help="Omit records of open and aborted transactions.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one row per line.")
@bootstrap_option
def sql(
    query: str,
    since: str | None,
    until: str | None,
    committed: bool,
    as_json: bool,
    bootstrap: Bootstrap,
) -> None:
    """Run a query over topics.

    A topic is a table with the columns key, value, topic, partition, offset, timestamp, timestampType and
    headers. Bounds such as timestamp >= now() - INTERVAL 1 HOUR are pushed down to offsets. Quote names with
    a dash: SELECT count(*) FROM "my-topic".
    """
    config = bootstrap.config(CONSUMER_KEYS, isolation_level="read_committed" if committed else None)
    waiting = Stages("barnabas")
    waiting.enter(f"reading from {bootstrap}", at_once=False)
    try:
        found = query_topics(query, since=since, until=until, config=config)
        if as_json:
            _print_json(found)
        else:
            click.echo(str(found), nl=False)
    except MissingExtra as error:
        raise Failure(str(error)) from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except InvalidConfig as error:
        raise InvalidSettings(error.message) from None
    except (ClusterUnreachable, NetworkException) as error:
        raise Unreachable(str(error)) from None
    except KafkaError as error:
        raise failure_for(error) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in {"duckdb", "_duckdb", "sqlglot"}:
            raise
        raise Failure(str(error)) from None
    finally:
        waiting.leave()


def _print_json(found: Any) -> None:
    names = found.columns
    for row in found.fetchall():
        sys.stdout.write(json.dumps(dict(zip(names, row, strict=True)), default=_plain) + "\n")


def _plain(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
