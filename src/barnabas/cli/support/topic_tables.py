"""Topics that are kept as tables, in commands: the check of `--table`, and the end of a table."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

import click

from barnabas.cli.support.exit_codes import Failure, InvalidSettings, Unreachable
from barnabas.cli.support.pipeline_client import Service, ask
from barnabas.cli.support.session import given_properties
from barnabas.config.definitions.topics import TABLE, TOPIC_KEYS
from barnabas.core.clock import SystemClock
from barnabas.core.errors import InvalidConfig
from barnabas.core.optional_dependencies import install_command
from barnabas.pipelines.spec.topic_table import document_of, pipeline_of, place_of

KEEP: Final = "keep"
REMOVE: Final = "remove"
SERVICE_URL: Final = "http://127.0.0.1:8083"
SERVICE_VARIABLE: Final = "BARNABAS_PIPELINES"
END_PATIENCE_MS: Final = 90_000
END_POLL_S: Final = 0.5


def checked_table(topic: str, text: str) -> str:
    """The topic setting of `--table`. A relative path becomes absolute; mistakes are refused."""
    kind, colon, rest = text.partition(":")
    place, question, options = rest.partition("?")
    if colon and place and "://" not in place:
        place = str(Path(place).absolute())
    setting = f"{kind}{colon}{place}{question}{options}"
    try:
        TOPIC_KEYS[TABLE].parse(setting)
        _check_pipeline(topic, setting)
    except InvalidConfig as error:
        raise click.BadParameter(error.message, param_hint="--table") from None
    return setting


def _check_pipeline(topic: str, setting: str) -> None:
    from barnabas.pipelines.spec.problems import InvalidSpec  # noqa: PLC0415 - rarely needed

    try:
        from barnabas.pipelines.spec.validation import load_document  # noqa: PLC0415 - optional packages
    except ImportError:
        return  # the service checks it, too
    try:
        load_document(document_of(topic, setting))
    except InvalidSpec as error:
        raise click.BadParameter(str(error), param_hint="--table") from None


def kept_table(topic: str, setting: str) -> str:
    kind, place = place_of(setting)
    return f"pipeline {pipeline_of(topic)} of the pipeline service keeps it as {kind} table {place}"


def asked_fate(topic: str, setting: str) -> str:
    """Ask what becomes of a table; without a terminal, `--table` must say."""
    kind, place = place_of(setting)
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{topic} is kept as {kind} table {place}: --table {KEEP} leaves the table, --table {REMOVE}"
            " removes it"
        )
    question = f"{topic} is kept as {kind} table {place}. What becomes of the table?"
    fate: str = click.prompt(question, type=click.Choice([KEEP, REMOVE]), default=KEEP)
    return fate


def service_of(ctx: click.Context) -> Service:
    """The pipeline service that may run the pipeline."""
    try:
        return Service.of(os.environ.get(SERVICE_VARIABLE, SERVICE_URL), given_properties(ctx))
    except InvalidConfig as error:
        raise InvalidSettings(f"--command-config: {error.message}") from None


def wait_for_end(pipeline: str, service: Service) -> None:
    """Wait until the service has deleted a pipeline; without a service, none runs it."""
    clock = SystemClock()
    end_ms = clock.now_ms() + END_PATIENCE_MS
    while True:
        try:
            if pipeline not in ask(service, "GET", "/connectors"):
                return
        except Unreachable:
            click.echo(
                f"no pipeline service at {service.url} ({SERVICE_VARIABLE} names another): one elsewhere may"
                f" still run {pipeline}",
                err=True,
            )
            return
        if clock.now_ms() > end_ms:
            raise Failure(f"{pipeline} still runs, and the topic stays: see 'barnabas pipeline status'")
        time.sleep(END_POLL_S)


def removed(setting: str) -> str:
    """Remove a table, and tell it."""
    try:
        from barnabas.pipelines.tables.storage import (  # noqa: PLC0415 - pyarrow
            NoTable,
            UnknownScheme,
            remove_table,
        )
    except ImportError:
        raise Failure(f"the table stays: its removal needs {install_command('spark')}") from None
    kind, place = place_of(setting)
    try:
        count = remove_table(kind, place)
    except (NoTable, UnknownScheme) as error:
        raise Failure(f"the table stays: {error}") from None
    return f"removed {kind} table {place}, {count} files"
