"""`barnabas start --secure`: certificates, passwords and client settings of a secured local cluster.

The directory `secure`, inside the data directory, is made once and holds:
- a certificate authority (`authority.pem`, key and certificate);
- the brokers' certificate (`broker.pem`), and the authority's certificate alone for clients (`ca.pem`);
- the passwords (`secrets.properties`);
- two files of settings per user: one for Java's clients and `barnabas`, one for librdkafka.

Only the owner can read `secure` and the data directory. A reader of `secure` could log in as any user, and a
reader of the data needs no login.

All brokers share one certificate: they run on one machine, for one person. They log in to each other by
SCRAM, as a user of their own. The users are in the coordination store before the first broker starts
(`stored_users`). Without `secure` the next start makes all files again, with new passwords.

A start renews the certificate when it is about to expire, when the advertised hosts have changed, or when
another authority has signed it. It renews the authority when a new certificate would outlive it.
"""

from __future__ import annotations

import datetime as dt
import secrets
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.config.cross_checks import AUTHORIZERS
from barnabas.config.derived import SECURED
from barnabas.config.properties import read_properties, render_properties
from barnabas.core.errors import InvalidConfig
from barnabas.localcluster.secret_files import make_private_directory, write_private
from barnabas.localcluster.stored_users import FirstUsers
from barnabas.security.credentials.scram_credential import ScramMechanism
from barnabas.security.tls.authority import hosts_of, is_issued_by, issue, make_authority
from barnabas.security.tls.settings import Store
from barnabas.security.tls.stores import KeyMaterial, pem_of, read_keys

ADMIN, NORMAL_USER, BROKER = "admin", "alice", "broker"
CLIENT_USERS = (ADMIN, NORMAL_USER)
MECHANISM = ScramMechanism.SHA_512
LISTENER = "SASL_SSL"

AUTHORITY_LIFETIME = dt.timedelta(days=3_650)
CERTIFICATE_LIFETIME = dt.timedelta(days=397)
RENEWED_BEFORE = dt.timedelta(days=60)
"""Earlier than a broker's warning about expiry."""

_ALWAYS = ("localhost", "127.0.0.1", "::1")
_EVERY_INTERFACE = ("", "0.0.0.0", "::")  # noqa: S104 - recognised, not bound
_ZOOKEEPER, _TOKENS = "zookeeper", "delegation.tokens"
_SECRETS = (ADMIN, NORMAL_USER, BROKER, _ZOOKEEPER, _TOKENS)
_USERS_STORED = "users.are.stored"
_SECRET_BYTES = 24
_LIBRDKAFKA_NOTE = (
    "# Needs librdkafka 2.6.1 or later (kcat -V shows it). Earlier ones cannot log in by SCRAM, here and to\n"
    "# Apache Kafka 4: they report invalid credentials.\n"
)


@dataclass(frozen=True, slots=True)
class SecuredHome:
    directory: Path
    expires: dt.datetime
    """Expiry of the certificate."""
    are_users_stored: bool
    """Whether an earlier start has stored the users with these passwords."""
    secrets: Mapping[str, str] = field(repr=False)

    @classmethod
    def open(cls, data_directories: Iterable[Path], hosts: Iterable[str], now: dt.datetime) -> SecuredHome:
        """Open or make the files in the first directory; INVALID_CONFIG if existing files are unusable."""
        absolute = [each.absolute() for each in data_directories]
        directory = absolute[0] / SECURED
        try:
            for each in (*absolute, directory):
                make_private_directory(each)
            certificate = _certificate(directory, _hosts(hosts), now)
            known = _read_secrets(directory / "secrets.properties")
            found = {name: known.get(name) or secrets.token_urlsafe(_SECRET_BYTES) for name in _SECRETS}
            if found.items() - known.items():
                write_private(directory / "secrets.properties", render_properties(found))
        except OSError as error:
            raise InvalidConfig(f"{error.filename} cannot be used: {error.strerror}") from None
        return cls(directory, certificate.certificate.not_valid_after_utc, _USERS_STORED in known, found)

    @property
    def first_users(self) -> FirstUsers:
        passwords = {name: self.secrets[name] for name in (*CLIENT_USERS, BROKER)}
        return FirstUsers(
            MECHANISM, passwords, replaces=frozenset([BROKER] if self.are_users_stored else passwords)
        )

    def broker_properties(self) -> dict[str, str]:
        """Properties of each broker, without its addresses."""
        mechanism = MECHANISM.mechanism_name
        return {
            "sasl.enabled.mechanisms": mechanism,
            "sasl.mechanism.inter.broker.protocol": mechanism,
            "inter.broker.listener.name": LISTENER,
            f"listener.name.{LISTENER.lower()}.{mechanism.lower()}.sasl.jaas.config": self._jaas(BROKER),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.directory / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / "ca.pem"),
            "authorizer.class.name": AUTHORIZERS[1],
            "super.users": f"User:{ADMIN};User:{BROKER}",
            "delegation.token.secret.key": self.secrets[_TOKENS],
        }

    def zookeeper_properties(self) -> dict[str, str]:
        """Properties that let only the brokers of a cluster change their ZooKeeper."""
        return {"zookeeper.auth": f"barnabas:{self.secrets[_ZOOKEEPER]}", "zookeeper.set.acl": "true"}

    def client_file(self, user: str) -> Path:
        """For Java's clients and tools, and for `--command-config`."""
        return self.directory / f"{user}.properties"

    def librdkafka_file(self, user: str) -> Path:
        """For kcat's `-F`, and for clients built on librdkafka."""
        return self.directory / f"{user}.librdkafka.properties"

    def settle(self, bootstrap: str | None) -> None:
        """Record that the users are stored, and write the files of settings."""
        remembered = render_properties({**self.secrets, _USERS_STORED: "true"})
        write_private(self.directory / "secrets.properties", remembered)
        mechanism, authority = MECHANISM.mechanism_name, str(self.directory / "ca.pem")
        common = {"security.protocol": LISTENER, "sasl.mechanism": mechanism}
        if bootstrap is not None:
            common["bootstrap.servers"] = bootstrap
        for user in CLIENT_USERS:
            java = {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": authority,
                "sasl.jaas.config": self._jaas(user),
            }
            write_private(self.client_file(user), render_properties(common | java))
            librdkafka = {
                "ssl.ca.location": authority,
                "sasl.username": user,
                "sasl.password": self.secrets[user],
            }
            lines = (f"{name}={value}\n" for name, value in (common | librdkafka).items())
            # librdkafka knows no escapes, and kcat skips lines that begin with #.
            write_private(self.librdkafka_file(user), _LIBRDKAFKA_NOTE + "".join(lines))

    def _jaas(self, user: str) -> str:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return f'{module} required username="{user}" password="{self.secrets[user]}";'


def _certificate(directory: Path, hosts: list[str], now: dt.datetime) -> KeyMaterial:
    authority = _read_keys(directory / "authority.pem")
    if authority is None or _left(authority, now) < CERTIFICATE_LIFETIME:
        authority = make_authority("barnabas start --secure", now, AUTHORITY_LIFETIME)
        write_private(directory / "authority.pem", authority.pem.decode())
    write_private(directory / "ca.pem", pem_of(authority.certificate).decode())
    found = _read_keys(directory / "broker.pem")
    if (
        found is None
        or _left(found, now) < RENEWED_BEFORE
        or hosts_of(found.certificate) != set(hosts)
        or not is_issued_by(found.certificate, authority)
    ):
        found = issue(authority, "barnabas broker", hosts, now, CERTIFICATE_LIFETIME)
        write_private(directory / "broker.pem", found.pem.decode())
    return found


def _left(keys: KeyMaterial, now: dt.datetime) -> dt.timedelta:
    return keys.certificate.not_valid_after_utc - now


def _hosts(given: Iterable[str]) -> list[str]:
    """Hosts of the certificate; for a listener on every interface, the names of this machine."""
    named = (socket.gethostname() if each in _EVERY_INTERFACE else each for each in given)
    return list(dict.fromkeys((*_ALWAYS, *named)))


def _read_keys(path: Path) -> KeyMaterial | None:
    if not path.exists():
        return None
    return read_keys(Store("ssl.keystore", "PEM", path, None, None))


def _read_secrets(path: Path) -> dict[str, str]:
    return read_properties(path.read_text(encoding="utf-8")) if path.exists() else {}
