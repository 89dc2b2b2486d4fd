"""TLS, SASL, authorization and delegation tokens.

Any of these may stand under `listener.name.<listener>.` to hold for one listener only, and
the SASL ones under `listener.name.<listener>.<mechanism>.` as well.

`config.cross_checks` refuses a value for a feature that is not served. A broker that ignored it would run
without the protection that the properties file asks for. Passwords are not stored, so none of them can be
changed at run time.
"""

from __future__ import annotations

from barnabas.config.definitions.keys import Key, at_least, one_of
from barnabas.config.definitions.shorthand import (
    BOOLEAN,
    CLASS,
    DAY_MS,
    DOUBLE,
    HOUR_MS,
    INT,
    KIB,
    LIST,
    LONG,
    MINUTE_MS,
    NO_EFFECT,
    PASSWORD,
    PER_BROKER,
    PER_LISTENER,
    READ_ONLY,
    SECOND_MS,
    SHORT,
    STRING,
)

AUTHORIZATION: tuple[Key, ...] = (
    Key("authorizer.class.name", STRING, "",
        doc="The authorizer; empty allows everything. Kafka's AclAuthorizer names the built-in one."),
    Key("super.users", STRING, "",
        doc="Principals that may do everything: User:name, separated by semicolons."),
    Key("allow.everyone.if.no.acl.found", BOOLEAN, False,
        doc="Whether a resource that no ACL names is open to all."),
    Key("principal.builder.class", CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", None, READ_ONLY,
        NO_EFFECT + "The principal is the authenticated user, or the name in the client's certificate."),
    Key("connections.max.reauth.ms", LONG, 0, at_least(0),
        doc="An older SASL session must authenticate again; 0 disables it."),
    Key("security.providers", STRING, None,
        doc=NO_EFFECT + "It names Java classes."),
)  # fmt: skip

HTTP: tuple[Key, ...] = (
    Key("http.users.file", STRING, None, None, READ_ONLY,
        "Users of the metrics page with passwords: a file of lines `name=password`, or, instead of a"
        " password, what `barnabas user hash` prints. It is read again when it changes. Not a key of Apache"
        " Kafka.", is_shown_unset=False),
    Key("http.tokens.file", STRING, None, None, READ_ONLY,
        "Users of the metrics page with bearer tokens: a file of lines `name=token`, or `name=sha256:` and"
        " the token's digest in hexadecimal. It is read again when it changes. Not a key of Apache Kafka.",
        is_shown_unset=False),
    Key("http.open", BOOLEAN, None, None, READ_ONLY,
        "Whether the metrics page is served without TLS or authentication where other machines reach it. Not"
        " a key of Apache Kafka.", is_shown_unset=False),
)  # fmt: skip

TLS: tuple[Key, ...] = (
    Key("ssl.client.auth", STRING, "none", one_of("required", "requested", "none"), READ_ONLY,
        "Whether clients must show a certificate, may show one, or are not asked."),
    Key("ssl.principal.mapping.rules", STRING, "DEFAULT",
        doc="Rules that turn the name in a client's certificate into a user."),
    Key("ssl.protocol", STRING, "TLSv1.3", None, READ_ONLY,
        NO_EFFECT + "The protocols are those of `ssl.enabled.protocols`."),
    Key("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), one_of("TLSv1.2", "TLSv1.3"), READ_ONLY,
        "The protocols that a handshake may choose."),
    Key("ssl.cipher.suites", LIST, (), None, READ_ONLY,
        "The cipher suites that a handshake may choose; empty means those of the TLS library."),
    Key("ssl.keystore.type", STRING, "JKS", None, PER_LISTENER,
        "The format of the key store: PEM or PKCS12, which the broker also detects by the content. Java's own"
        " JKS, the default in Kafka, cannot be read here."),
    Key("ssl.keystore.location", STRING, None, None, PER_LISTENER,
        "The file with the broker's key and certificate. It is read again when it changes."),
    Key("ssl.keystore.password", PASSWORD, None, None, READ_ONLY,
        "The password of that file."),
    Key("ssl.key.password", PASSWORD, None, None, READ_ONLY,
        "The password of the private key."),
    Key("ssl.keystore.key", PASSWORD, None, None, READ_ONLY,
        "The private key itself, as PEM text."),
    Key("ssl.keystore.certificate.chain", PASSWORD, None, None, READ_ONLY,
        "The certificate chain itself, as PEM text."),
    Key("ssl.truststore.type", STRING, "JKS", None, PER_LISTENER,
        "The format of the trust store."),
    Key("ssl.truststore.location", STRING, None, None, PER_LISTENER,
        "The file with the certificates that peers are checked against. It is read again when it changes."),
    Key("ssl.truststore.password", PASSWORD, None, None, READ_ONLY,
        "The password of that file."),
    Key("ssl.truststore.certificates", PASSWORD, None, None, READ_ONLY,
        "The trusted certificates themselves, as PEM text."),
    Key("ssl.endpoint.identification.algorithm", STRING, "https", None, READ_ONLY,
        "The check of another broker's host name; empty disables it."),
    Key("ssl.allow.dn.changes", BOOLEAN, False,
        doc="Whether a new certificate, installed at run time, may have another name."),
    Key("ssl.allow.san.changes", BOOLEAN, False,
        doc="Whether a new certificate, installed at run time, may lack alternative names of the old"
        " one."),
    Key("ssl.provider", STRING, None, None, READ_ONLY, NO_EFFECT + "It names a Java provider."),
    Key("ssl.keymanager.algorithm", STRING, "SunX509", None, READ_ONLY,
        NO_EFFECT + "It names a Java algorithm."),
    Key("ssl.trustmanager.algorithm", STRING, "PKIX", None, READ_ONLY,
        NO_EFFECT + "It names a Java algorithm."),
    Key("ssl.secure.random.implementation", STRING, None, None, READ_ONLY,
        NO_EFFECT + "It names a Java implementation."),
    Key("ssl.engine.factory.class", CLASS, None, None, READ_ONLY, NO_EFFECT + "It names a Java class."),
)  # fmt: skip

_TOKEN_FILE = (
    NO_EFFECT + "The token of the broker itself is read from its file for each connection; none is fetched."
)

SASL: tuple[Key, ...] = (
    Key("sasl.enabled.mechanisms", LIST, ("GSSAPI",), None, READ_ONLY,
        "The mechanisms that clients may authenticate by: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER,"
        " GSSAPI."),
    Key("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None, READ_ONLY,
        "The mechanism between brokers."),
    Key("sasl.jaas.config", PASSWORD, None, None, READ_ONLY,
        "Users and passwords in Java's JAAS form, usually one per listener and mechanism."),
    Key("sasl.server.max.receive.size", INT, 512 * KIB, at_least(1),
        doc="The largest message of an authentication exchange; at most 128 KiB count, which is more than any"
        " mechanism needs."),
    Key("sasl.server.callback.handler.class", CLASS, None, doc=NO_EFFECT + "It names a Java class."),
    Key("sasl.client.callback.handler.class", CLASS, None, doc=NO_EFFECT + "It names a Java class."),
    Key("sasl.login.class", CLASS, None, doc=NO_EFFECT + "It names a Java class."),
    Key("sasl.login.callback.handler.class", CLASS, None, doc=NO_EFFECT + "It names a Java class."),
    Key("sasl.login.refresh.window.factor", DOUBLE, 0.8, None, READ_ONLY, _TOKEN_FILE),
    Key("sasl.login.refresh.window.jitter", DOUBLE, 0.05, None, READ_ONLY, _TOKEN_FILE),
    Key("sasl.login.refresh.min.period.seconds", SHORT, 60, None, READ_ONLY, _TOKEN_FILE),
    Key("sasl.login.refresh.buffer.seconds", SHORT, 300, None, READ_ONLY, _TOKEN_FILE),
    Key("sasl.login.connect.timeout.ms", INT, None, doc=_TOKEN_FILE),
    Key("sasl.login.read.timeout.ms", INT, None, doc=_TOKEN_FILE),
    Key("sasl.login.retry.backoff.ms", LONG, 100, doc=_TOKEN_FILE),
    Key("sasl.login.retry.backoff.max.ms", LONG, 10 * SECOND_MS, doc=_TOKEN_FILE),
    Key("sasl.oauthbearer.scope.claim.name", STRING, "scope",
        doc="The claim of a token that holds its scope."),
    Key("sasl.oauthbearer.sub.claim.name", STRING, "sub", doc="The claim of a token that holds the user."),
    Key("sasl.oauthbearer.token.endpoint.url", STRING, None,
        doc="The file: URL of the token that the broker itself shows."),
    Key("sasl.oauthbearer.jwks.endpoint.url", STRING, None, doc="URL of the keys that verify tokens."),
    Key("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, HOUR_MS,
        doc="Interval of the reads of those keys."),
    Key("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100,
        doc="The pause after a failed read of those keys."),
    Key("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10 * SECOND_MS,
        doc=NO_EFFECT + "The pause does not grow: the previous keys stay in force."),
    Key("sasl.oauthbearer.clock.skew.seconds", INT, 30,
        doc="The largest difference between the clocks of issuer and broker."),
    Key("sasl.oauthbearer.expected.audience", LIST, None, doc="Audiences of which a token must name one."),
    Key("sasl.oauthbearer.expected.issuer", STRING, None, doc="The issuer that a token must name."),
    Key("sasl.oauthbearer.header.urlencode", BOOLEAN, False, doc=_TOKEN_FILE),
    Key("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), None, READ_ONLY,
        "Rules that turn a Kerberos principal into a user; the first that matches decides."),
    Key("sasl.kerberos.service.name", STRING, None, None, READ_ONLY,
        "The Kerberos service name of the brokers. If a login module names no principal, the broker uses this"
        " service's keys in the keytab."),
    Key("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", None, PER_BROKER,
        NO_EFFECT + "Tickets are renewed by the Kerberos library."),
    Key("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, None, PER_BROKER,
        NO_EFFECT + "Tickets are renewed by the Kerberos library."),
    Key("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, None, PER_BROKER,
        NO_EFFECT + "Tickets are renewed by the Kerberos library."),
    Key("sasl.kerberos.min.time.before.relogin", LONG, MINUTE_MS, None, PER_BROKER,
        NO_EFFECT + "Tickets are renewed by the Kerberos library."),
)  # fmt: skip

TOKENS: tuple[Key, ...] = (
    Key("delegation.token.secret.key", PASSWORD, None,
        doc="The secret that signs delegation tokens, the same on every broker; unset disables tokens."),
    Key("delegation.token.master.key", PASSWORD, None,
        doc="The older name of `delegation.token.secret.key`, which wins."),
    Key("delegation.token.max.lifetime.ms", LONG, 7 * DAY_MS, at_least(1),
        doc="A token cannot be renewed past this age."),
    Key("delegation.token.expiry.time.ms", LONG, DAY_MS, at_least(1),
        doc="A token that is not renewed ends after this time."),
    Key("delegation.token.expiry.check.interval.ms", LONG, HOUR_MS, at_least(1),
        doc="How often ended tokens are removed."),
    Key("password.encoder.secret", PASSWORD, None,
        doc="The secret that encrypts passwords set at run time before they go to ZooKeeper."),
    Key("password.encoder.old.secret", PASSWORD, None,
        doc="The previous secret, for one start with both."),
    Key("password.encoder.keyfactory.algorithm", STRING, None,
        doc="The derivation of the key from that secret; unset means the strongest available."),
    Key("password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding",
        doc="The cipher of that encryption, in Java's spelling."),
    Key("password.encoder.key.length", INT, 128, at_least(8),
        doc="The length of that key in bits."),
    Key("password.encoder.iterations", INT, 4_096, at_least(1_024),
        doc="The rounds of that derivation."),
)  # fmt: skip
