"""A ZooKeeper that asks for a certificate and for a password, and brokers that have both."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from barnabas.cluster.coordination.contract import ConnectionLoss, NoAuth, SessionState
from barnabas.cluster.zookeeper import DigestLogin, ServerAccess, open_zookeeper
from barnabas.core.clock import SystemClock
from tests.scenario.zookeeper.test_session import opened
from tests.support.cluster import cluster
from tests.support.ports import free_port
from tests.support.proxy import proxied
from tests.support.wire import WireConnection
from tests.support.zookeeper import ZooKeeper, require_zookeeper

pytestmark = pytest.mark.rest

USER, PASSWORD = "kafka", 'sec"ret\\ é'
SERVER_SETTINGS = {
    "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
    "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    "secureClientPortAddress": "127.0.0.1",
    "ssl.clientAuth": "need",
}


@dataclass
class Secured:
    server: ZooKeeper
    port: int
    directory: Path
    authority: trustme.CA

    @property
    def connect(self) -> str:
        """By TLS, in a chroot of its own."""
        return self.server.chroot().replace(f":{self.server.port}", f":{self.port}")

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.directory / "ca.pem")
        context.load_cert_chain(self.directory / "broker.pem")
        return context

    def access(self, user: str = USER, password: str = PASSWORD) -> ServerAccess:
        return ServerAccess(None, DigestLogin(user, password), self.tls)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    require_zookeeper()
    directory, authority, port = tmp_path_factory.mktemp("secured"), trustme.CA(), free_port()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    for name in ("server", "broker"):
        certificate = authority.issue_cert("127.0.0.1", common_name=name)
        (directory / f"{name}.pem").write_bytes(_key_and_chain(certificate))
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    (directory / "server.jaas").write_text(f'Server {{ {module} user_{USER}="{quoted}"; }};\n')
    (directory / "broker.jaas").write_text(
        "KafkaServer { some.Module required; };\n"
        f'Client {{ {module} username="{USER}" password="{quoted}"; }};\n'
    )
    server = ZooKeeper(directory / "zookeeper", wrap=_securing(directory, port))
    server.start()
    try:
        yield Secured(server, port, directory, authority)
    finally:
        server.kill()


def _key_and_chain(certificate: trustme.LeafCert) -> bytes:
    """The key as PKCS8, which is what ZooKeeper reads."""
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    form, secrecy = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    chain = b"".join(each.bytes() for each in certificate.cert_chain_pems)
    return key.private_bytes(serialization.Encoding.PEM, form, secrecy) + chain


def _securing(directory: Path, port: int) -> Callable[[list[str]], list[str]]:
    def wrap(command: list[str]) -> list[str]:
        """The server's command with TLS and SASL, which take more of the jars."""
        config, classpath = Path(command[-1]), command.index("-cp") + 1
        settings = {
            **SERVER_SETTINGS,
            "secureClientPort": port,
            "ssl.keyStore.location": directory / "server.pem",
            "ssl.trustStore.location": directory / "ca.pem",
        }
        with config.open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in settings.items())
        jars = Path(command[classpath].split(os.pathsep)[0]).parent
        command[classpath] += os.pathsep + os.pathsep.join(map(str, sorted(jars.glob("netty-*.jar"))))
        options = (
            f"-Djava.security.auth.login.config={directory / 'server.jaas'}",
            "-Dfile.encoding=UTF-8",
            "-Dio.netty.tryReflectionSetAccessible=true",
        )
        return [command[0], *options, *command[1:]]

    return wrap


async def test_what_a_login_made_is_its_own(secured: Secured) -> None:
    connect = secured.connect
    async with (
        opened(connect, access=secured.access(), set_acl=True) as owner,
        opened(connect, access=secured.access()) as colleague,
        opened(connect.replace(f":{secured.port}", f":{secured.server.port}")) as nobody,
    ):
        await owner.session.create("/config/users/alice", b"scram", make_parents=True)
        await owner.session.create("/brokers/ids", make_parents=True)
        for attempt in (nobody.session.get("/config/users/alice"), nobody.session.create("/brokers/ids/1")):
            with pytest.raises(NoAuth):
                await attempt
        assert await nobody.session.children("/brokers") == ["ids"]
        assert (await colleague.session.get("/config/users/alice"))[0] == b"scram"


async def test_much_crosses_tls_and_a_broken_connection_is_made_again(secured: Secured) -> None:
    connect = secured.connect
    path = connect.partition("/")[2]
    async with proxied("127.0.0.1", secured.port) as proxy:
        async with opened(f"{proxy.address}/{path}", access=secured.access(), set_acl=True) as far:
            values = {f"/n{number}": bytes([number]) * 200_000 for number in range(20)}
            await asyncio.gather(*(far.session.create(name, data) for name, data in values.items()))
            found = await far.session.get_many(list(values))
            assert [node[0] for node in found if node is not None] == list(values.values())
            session_id = far.session.session_id
            proxy.drop()
            await far.until(lambda: far.states[-2:] == [SessionState.SUSPENDED, SessionState.CONNECTED])
            assert far.session.session_id == session_id
            await far.session.set("/n0", b"still ours")


@pytest.mark.parametrize("what", ["password", "user", "authority"])
async def test_who_is_refused_hears_why(secured: Secured, what: str) -> None:
    access = secured.access("nobody" if what == "user" else USER, "x" if what == "password" else PASSWORD)
    if what == "authority":
        access = ServerAccess(make_tls_context=ssl.create_default_context)
    hint = "TLS handshake failed" if what == "authority" else "refuses the name or the password"
    with pytest.raises(ConnectionLoss, match=hint):
        async with open_zookeeper(
            secured.connect,
            session_timeout_ms=10_000,
            connection_timeout_ms=3_000,
            clock=SystemClock(),
            access=access,
        ):
            pass


def test_a_broker_by_kafkas_settings(secured: Secured, tmp_path: Path) -> None:
    settings = {
        "zookeeper.set.acl": "true",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keystore.location": str(secured.directory / "broker.pem"),
        "zookeeper.ssl.truststore.location": str(secured.directory / "ca.pem"),
        "java.security.auth.login.config": str(secured.directory / "broker.jaas"),
    }
    connect = secured.connect
    with cluster(1, tmp_path, connect, settings) as one:
        broker = one.brokers[0]
        with WireConnection(broker.host, broker.port) as connection:
            assert connection.create_topic("orders") == 0

        async def meddle() -> None:
            async with opened(connect.replace(f":{secured.port}", f":{secured.server.port}")) as nobody:
                assert "orders" in await nobody.session.children("/brokers/topics")
                await nobody.session.delete("/controller")

        with pytest.raises(NoAuth, match="/controller"):
            asyncio.run(meddle())
