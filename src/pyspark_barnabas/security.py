"""How connections are protected: `kafka.security.protocol` and the `kafka.ssl.*` options.

Certificates are PEM files, because Python's `ssl` reads no Java key stores: the options that name
the files are Kafka's own (`ssl.truststore.location` with `ssl.truststore.type=PEM`), or the shorter
`ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location` that librdkafka has. The files are
read where the connection is made, on the driver and on every executor. SASL is refused by name.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

OPTIONS: Final = frozenset(
    {
        "security.protocol",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.endpoint.identification.algorithm",
    }
)


@dataclass(frozen=True, slots=True)
class Security:
    """PLAINTEXT unless `is_tls`."""

    is_tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    checks_host: bool = True

    def __repr__(self) -> str:
        return f"Security(is_tls={self.is_tls}, ca_file={self.ca_file})"

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Security:
        """From `kafka.*` options without their prefix; ValueError says what is wrong."""
        protocol = options.get("security.protocol", "PLAINTEXT").upper()
        if protocol.startswith("SASL_"):
            raise ValueError(
                f"kafka.security.protocol={protocol} is not supported by this connector: "
                "use PLAINTEXT or SSL, or engine=jvm"
            )
        if protocol not in {"PLAINTEXT", "SSL"}:
            raise ValueError(f"kafka.security.protocol is PLAINTEXT or SSL, not {protocol!r}")
        if protocol == "PLAINTEXT":
            return cls()
        for store in ("ssl.truststore", "ssl.keystore"):
            if f"{store}.location" in options and options.get(f"{store}.type", "JKS").upper() != "PEM":
                raise ValueError(
                    f"kafka.{store}.location needs kafka.{store}.type=PEM: Java stores are not read"
                )
        keystore = options.get("ssl.keystore.location")
        certificate = options.get("ssl.certificate.location", keystore)
        return cls(
            is_tls=True,
            ca_file=options.get("ssl.ca.location", options.get("ssl.truststore.location")),
            certificate_file=certificate,
            key_file=options.get("ssl.key.location"),
            key_password=options.get("ssl.key.password"),
            checks_host=options.get("ssl.endpoint.identification.algorithm", "https") != "",
        )

    def context(self) -> ssl.SSLContext | None:
        if not self.is_tls:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        context.check_hostname = self.checks_host
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file, self.key_password)
        return context
