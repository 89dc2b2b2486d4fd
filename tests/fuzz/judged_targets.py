"""Targets with a judge of their own: an input is no message, but chooses one whose right treatment is known.

A login with SCRAM must not tell which users there are. SQL of a client must not call Java or read files, in
any spelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from barnabas.security.credentials.decoys import Decoys
from barnabas.security.credentials.scram_credential import KnownCredential, ScramCredential, ScramMechanism
from barnabas.security.sasl.outcome import Challenge
from barnabas.security.sasl.scram import CredentialLookup, ScramAuthentication
from tests.fuzz.target import Target

ITERATIONS = 5_000
CHALLENGE = re.compile(rb"r=.*,s=([A-Za-z0-9+/=]+),i=(\d+)")
GAPS = ("", " ", "\n", "\t", "/* */", "/* ) */ ", "-- (\n", " /*/* */*/")
AROUND = ("{}", "upper({})", "a + {}", "CASE WHEN {} THEN 1 END", "ARRAY({})[0]", "(SELECT {} FROM input)")
JAVA = ("reflect", "java_method", "try_reflect")
FORMATS = ("text", "csv", "json", "parquet", "orc", "binaryFile", "delta", "avro")


def judged_targets() -> Iterator[Target]:
    yield Target("SCRAM login", _log_in, [b"1", b"a"])
    try:
        from barnabas.pipelines.spec.sql_calls import forbidden_calls
    except ImportError:
        return

    def refuse(text: str) -> None:
        assert forbidden_calls(text), f"accepted: {text}"

    yield Target("SQL that calls Java", lambda data: refuse(_java_call(Random(data))), [b"1", b"2"])
    yield Target("SQL that reads files", lambda data: refuse(_files(Random(data))), [b"1", b"2"])


def _log_in(data: bytes) -> None:
    """What an unknown user is shown has the shape that known ones have."""
    mechanism = ScramMechanism.SHA_256
    decoys = Decoys(b"secret")
    known = ScramCredential.derive(mechanism, "password", ITERATIONS)
    decoys.add(mechanism, known)

    def find(_: ScramMechanism, name: str) -> KnownCredential:
        return decoys.of(mechanism, name)

    server = ScramAuthentication(mechanism, CredentialLookup(find, find))
    challenge = server.step(b"n,,n=" + data.hex().encode()[:1_000] + b"-,r=nonce")
    assert isinstance(challenge, Challenge)
    shown = CHALLENGE.fullmatch(challenge.token)
    assert shown is not None, challenge
    assert int(shown[2]) == ITERATIONS, "an unknown user has other iterations than any known one"


def _java_call(random: Random) -> str:
    name = _in_any_case(random.choice(JAVA), random)
    if random.random() < 0.3:
        name = f"`{name}`"
    call = f"{name}{random.choice(GAPS)}('java.lang.System', 'getenv', 'HOME')"
    for _ in range(random.randrange(3)):
        call = random.choice(AROUND).format(call)
    return f"SELECT{random.choice(GAPS[1:4])}{call} AS a FROM input"


def _files(random: Random) -> str:
    kind, gap = _in_any_case(random.choice(FORMATS), random), random.choice(("", " ", "/**/"))
    path = random.choice(("/etc/passwd", "secret.txt", "s3a://b/k", "../x"))
    before = random.choice(("FROM", "from", "FROM input JOIN", "FROM input UNION SELECT * FROM"))
    return f"SELECT * {before} {kind}{gap}.{gap}`{path}`"


def _in_any_case(name: str, random: Random) -> str:
    return "".join(random.choice((each.lower(), each.upper())) for each in name)
