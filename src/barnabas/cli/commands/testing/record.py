"""`barnabas record` and `barnabas replay`: traffic of a client as a file, and its replay."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import click

from barnabas.cli.support.arguments import parse_address
from barnabas.cli.support.exit_codes import Failure
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.testing.traffic.recorder import recording
from barnabas.testing.traffic.recording import BadRecording, RecordingWriter
from barnabas.testing.traffic.replay import ANSWER_TIMEOUT_S, replay_recording


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--listen", default="127.0.0.1:0", show_default=True, help="Address for the client.")
@click.option("--to", required=True, help="Address of a broker.")
def record(file: Path, listen: str, to: str) -> None:
    """Record what a client and its brokers say to each other, until Ctrl-C.

    The client uses the printed address as bootstrap.servers. FILE gets every request and answer. Records are
    in it as they were sent. Passwords and delegation tokens are not.
    """
    source, target = (
        parse_address(listen, "--listen"),
        parse_address(to, "--to"),
    )
    try:
        writer = RecordingWriter(file)
    except OSError as error:
        raise Failure(f"cannot write {file}: {error.strerror}") from None
    try:
        asyncio.run(_record(source, target, writer))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        raise Failure(f"cannot record on {listen}: {reason}") from None
    finally:
        writer.close()
    counted = f"{writer.events} requests and answers in {file}"
    if writer.failure is not None:
        raise Failure(f"the recording ended early: {writer.failure.strerror}; {counted}")
    click.echo(counted)


async def _record(listen: Endpoint, to: Endpoint, writer: RecordingWriter) -> None:
    stopped = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stopped.set)
    writer.on_failure = stopped.set
    async with recording(listen, to, writer) as bound:
        click.echo(f"recording on {bound}, to {to}; Ctrl-C ends it")
        await stopped.wait()


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--to", help="Address of a broker. Without it, a broker is started for the replay.")
@click.option(
    "--timeout",
    "timeout_s",
    default=ANSWER_TIMEOUT_S,
    show_default=True,
    help="Seconds to wait.",
)
def replay(file: Path, to: str | None, timeout_s: float) -> None:
    """Replay a recording, and compare the answers. The exit code is 1 if they differ."""
    try:
        report = replay_recording(file, to and str(parse_address(to, "--to")), timeout_s=timeout_s)
    except BadRecording as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise Failure(f"cannot replay: {error.strerror or error}") from None
    click.echo(str(report))
    if report.differences:
        sys.exit(1)
