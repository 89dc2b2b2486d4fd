"""Programs in other languages: how each is built and called, and how its output is read.

A program is called as `program <bootstrap> <topic prefix> <feature>=<timeout in ms> ...` and prints one line
of JSON per feature (tests/clients/go/harness says which). It is built once, in a copy of its sources whose
name carries their digest, in a cache outside the repository; so a changed source is a new directory and a
build that was cut short leaves nothing that looks finished. A missing tool on this machine (a compiler, a
registry) skips the test; a failed compilation fails it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.peers.kafka import kafka_version
from tests.peers.maven import COPY_DEPENDENCIES

SOURCES = Path(__file__).parent
FETCH_TIMEOUT_S = 600.0
COMPILE_TIMEOUT_S = 900.0
RUN_LIMIT_S = 300.0


class ProgramUnavailable(Exception):
    """The language or its packages cannot be had here; the reason is the message."""


_unavailable: dict[str, ProgramUnavailable] = {}
"""Kits that could not be had: asked for once, not once per client."""


@dataclass(frozen=True, slots=True)
class Kit:
    """Sources that are fetched for and compiled together."""

    name: str
    sources: str
    tools: tuple[str, ...]
    fetch: tuple[tuple[str, ...], ...] = ()
    compile: tuple[tuple[str, ...], ...] = ()

    def directory(self) -> Path:
        """Where the finished build is, made now if it is not there."""
        if self.name in _unavailable:
            raise _unavailable[self.name]
        missing = [tool for tool in self.tools if shutil.which(tool) is None]
        if missing:
            raise ProgramUnavailable(f"{', '.join(missing)} is not installed")
        target = cache_directory() / f"{self.name}-{self._digest()}"
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.is_dir():
                self._build(target)
        return target

    def _build(self, target: Path) -> None:
        partial = Path(tempfile.mkdtemp(dir=target.parent, prefix="partial-"))
        try:
            shutil.copytree(SOURCES / self.sources, partial, dirs_exist_ok=True)
            for command in self.fetch:
                done = _run(command, partial, FETCH_TIMEOUT_S)
                if done.returncode != 0:
                    said = " ".join(done.stdout.split())[-300:]
                    raise ProgramUnavailable(f"{command[0]} could not fetch what it needs: {said}")
            for command in self.compile:
                done = _run(command, partial, COMPILE_TIMEOUT_S)
                assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}"
            partial.rename(target)
        except ProgramUnavailable as reason:
            _unavailable[self.name] = reason
            raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _digest(self) -> str:
        digest = hashlib.sha256(repr((self.fetch, self.compile)).encode())
        for file in sorted((SOURCES / self.sources).rglob("*")):
            if file.is_file():
                digest.update(str(file.relative_to(SOURCES)).encode() + file.read_bytes())
        return digest.hexdigest()[:12]


def _run(command: Sequence[str], directory: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["nice", *command],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ProgramUnavailable(f"{command[0]} did not end in {timeout_s:.0f} s") from None


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "barnabas" / "clients"


@dataclass(frozen=True, slots=True)
class Program:
    """One client in one language. A `long` one is left out of `make test`."""

    client: str
    language: str
    kit: Kit
    command: tuple[str, ...]
    long: bool = False

    @property
    def name(self) -> str:
        return self.client.replace(" ", "-")


@dataclass(slots=True)
class Outcome:
    """Result of a program: `ok`, `failed` or `absent`, with a note."""

    version: str = ""
    results: dict[str, tuple[str, str]] = field(default_factory=dict)
    complaint: str = ""
    unavailable: str = ""


def run(
    program: Program,
    bootstrap: str,
    prefix: str,
    timeouts_ms: Mapping[str, int],
    properties: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """`properties` are those of Java's clients, for programs that support security; `environment` has further
    settings of a program."""
    command = [*program.command, bootstrap, prefix]
    command += [f"{feature}={timeout}" for feature, timeout in timeouts_ms.items()]
    directory = program.kit.directory()
    limit_s = min(RUN_LIMIT_S, sum(timeouts_ms.values()) / 1_000)
    try:
        done = subprocess.run(
            [str(directory / command[0]) if (directory / command[0]).exists() else command[0], *command[1:]],
            cwd=directory,
            env={
                **os.environ,
                **(environment or {}),
                **({"CLIENT_PROPERTIES": str(properties)} if properties else {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return _understand(_text(late.stdout), f"no end after {limit_s:.0f} s: {_text(late.stderr)[-1000:]}")
    return _understand(done.stdout, f"exit code {done.returncode}: {done.stderr[-1000:]}")


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def _understand(output: str, complaint: str) -> Outcome:
    outcome = Outcome(complaint=complaint)
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        said = json.loads(line)
        if "client" in said:
            outcome.version = said["version"]
        else:
            outcome.results[said["feature"]] = (said["result"], said.get("note", ""))
    return outcome


GO = Kit(
    "go", "go", ("go",), fetch=(("go", "mod", "download"),), compile=(("go", "build", "-o", "bin/", "./..."),)
)
NPM = ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund")
JAVASCRIPT = Kit(
    "javascript",
    "javascript",
    ("node", "npm"),
    fetch=((*NPM, "--fetch-retries=0", "--ignore-scripts"),),
)
RUST = Kit(
    "rust", "rust", ("cargo",), fetch=(("cargo", "fetch"),), compile=(("cargo", "build", "--offline"),)
)


def java(version: str, *sources: str) -> Kit:
    """The same features against one version of kafka-clients; `sources` are those that its API compiles."""
    pom = ("mvn", "-B", "-q", "-f", "pom.xml", f"-Dkafka.clients.version={version}")
    compiled = ("sh", "-c", f"javac -nowarn -cp 'jars/*' -d classes {' '.join(sources)}")
    return Kit(
        f"java-{version}",
        "java",
        ("java", "javac", "mvn"),
        fetch=((*pom, COPY_DEPENDENCIES, "-DoutputDirectory=jars"),),
        compile=(compiled,),
    )


def java_program(version: str, *sources: str, long: bool) -> Program:
    command = ("java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", "classes:jars/*")
    kit = java(version, *sources)
    return Program(f"kafka-clients {version}", "Java", kit, (*command, "Main", version), long)


NEWEST_JAVA_CLIENT = "4.4.0"
"""Kafka's clients are on Maven Central before its broker is: this may be newer than the peer."""

MODERN = ("src/*.java", "modern/*.java")
LEGACY = ("src/*.java", "legacy/*.java")
OLDEST = ("src/Main.java", "oldest/*.java")
"""Before 0.11 there was no admin client, so nearly everything is written another way."""

PROGRAMS: tuple[Program, ...] = (
    java_program(NEWEST_JAVA_CLIENT, *MODERN, long=False),
    java_program(kafka_version(), *MODERN, long=True),
    java_program("3.9.2", *MODERN, long=True),
    java_program("2.8.2", *MODERN, long=True),
    java_program("0.11.0.3", *LEGACY, long=True),
    java_program("0.10.2.2", *OLDEST, "era-0.10/*.java", long=True),
    java_program("0.9.0.1", *OLDEST, "era-0.9/*.java", long=True),
    Program("franz-go", "Go", GO, ("bin/franzgo",)),
    Program("sarama", "Go", GO, ("bin/sarama",)),
    Program("kafka-go", "Go", GO, ("bin/kafkago",)),
    Program("kafkajs", "JavaScript", JAVASCRIPT, ("node", "main.js")),
    Program("rskafka", "Rust", RUST, ("target/debug/features",)),
)
