"""Access rules, users, quotas and tokens in the console, compared with what an admin client says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

import httpx
import pytest

from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.sync.admin import Admin
from barnabas.security.acl.bindings import AccessRule, AclBinding, ResourcePattern
from barnabas.security.acl.vocabulary import Operation, Permission, ResourceType
from tests.support.console import RunningConsole, form_token, running_console, submit, words
from tests.support.secured_broker import SecuredBroker, secured_broker
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"delegation.token.secret.key": "only-of-this-test"}
    with secured_broker(tmp_path_factory.mktemp("secured"), settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def owner(secured: SecuredBroker) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": secured.bootstrap, **secured.settings("admin")}) as admin:
        yield admin


@pytest.fixture(scope="module")
def of_admin(secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    file = tmp_path_factory.mktemp("client") / "client.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in secured.settings("admin").items()))
    with running_console(secured.bootstrap, before=["--command-config", str(file)]) as console:
        yield console


@pytest.fixture
def client(of_admin: RunningConsole) -> Iterator[httpx.Client]:
    with of_admin.client() as client:
        token = of_admin.shown_url.partition("token=")[2]
        client.get(f"/sign-in?token={token}", follow_redirects=True)
        yield client


RULE = {
    "principal": "User:alice",
    "permission": "ALLOW",
    "operation": "READ",
    "resource_type": "TOPIC",
    "resource": "orders",
    "pattern": "LITERAL",
    "host": "*",
}


def test_a_rule_is_added_found_and_removed(client: httpx.Client, owner: Admin) -> None:
    added = submit(client, "/access", "/access/add", **RULE)
    assert "Added: ALLOW READ to User:alice from * on TOPIC:LITERAL:orders." in words(added)
    binding = AclBinding(
        ResourcePattern(ResourceType.TOPIC, "orders"),
        AccessRule("User:alice", "*", Operation.READ, Permission.ALLOW),
    )
    assert binding in owner.describe_acls()
    submit(client, "/access", "/access/add", **{**RULE, "principal": "User:<b>bob</b>", "operation": "ALL"})
    found = client.get("/access?search=<b>")
    assert "User:<b>bob</b>" in words(found)
    assert "<b>bob" not in found.text
    assert "User:alice" not in words(found)
    assert client.get("/api/access?search=alice").json() == [RULE]
    gone = submit(client, "/access", "/access/remove", **RULE)
    assert "Removed: ALLOW READ" in words(gone)
    assert binding not in owner.describe_acls()
    again = submit(client, "/access", "/access/remove", **RULE)
    assert "There was no such rule" in words(again)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("principal", "alice", "is not a principal"),
        ("operation", "CLUSTER_ACTION", "does not apply to TOPIC"),
        ("operation", "EVERYTHING", "operation is one of"),
        ("permission", "ANY", "valid in filters only"),
        ("resource", "", "cannot name a resource"),
        ("resource", "a/b", "cannot name a resource"),
        ("pattern", "MATCH", "valid in filters only"),
    ],
)
def test_a_rule_without_effect_is_refused(
    client: httpx.Client, owner: Admin, field: str, value: str, said: str
) -> None:
    before = owner.describe_acls()
    refused = submit(client, "/access", "/access/add", **{**RULE, field: value})
    assert refused.status_code == 400
    assert said in words(refused)
    assert owner.describe_acls() == before


def test_a_user_gets_a_password_and_loses_it(client: httpx.Client, owner: Admin) -> None:
    fields = {"user": "carol", "mechanism": "SCRAM-SHA-512", "iterations": "4096"}
    differ = submit(client, "/access/users", "/access/users/add", **fields, password="one", again="two")
    assert "the two passwords differ" in words(differ)
    few = {**fields, "iterations": "1"}
    assert (
        submit(client, "/access/users", "/access/users/add", **few, password="x", again="x").status_code
        == 400
    )
    assert owner.describe_user_scram_credentials() == []
    added = submit(
        client, "/access/users", "/access/users/add", **fields, password=" se cret", again=" se cret"
    )
    assert "carol can sign in by SCRAM-SHA-512 now." in words(added)
    assert "se cret" not in added.text
    assert client.get("/api/access/users").json() == [
        {"name": "carol", "iterations": {"SCRAM-SHA-512": 4096}}
    ]
    ((name, iterations),) = owner.describe_user_scram_credentials()
    assert (name, iterations) == ("carol", {"SCRAM-SHA-512": 4096})
    gone = submit(client, "/access/users", "/access/users/remove", user="carol", mechanism="SCRAM-SHA-512")
    assert "Removed the SCRAM-SHA-512 credential of carol." in words(gone)
    assert owner.describe_user_scram_credentials() == []


def test_quotas_are_set_shown_and_removed(client: httpx.Client, owner: Admin) -> None:
    rate = {"key": "producer_byte_rate", "value": "1048576"}
    made = submit(client, "/access/quotas", "/access/quotas/set", user="<default>", **rate)
    assert "producer_byte_rate of user <default> is 1,048,576 now." in words(made)
    submit(client, "/access/quotas", "/access/quotas/set", **{"user": "alice", "client-id": "etl", **rate})
    shown = words(client.get("/access/quotas"))
    assert "user alice , client id etl producer_byte_rate 1.0 MiB/s" in shown
    assert {frozenset(each.entity.items()) for each in owner.describe_client_quotas({})} == {
        frozenset({("user", None)}),
        frozenset({("user", "alice"), ("client-id", "etl")}),
    }
    for fields in ({"user": "a", "value": "-1"}, {"user": "a", "value": "nan"}, {"value": "5"}):
        refused = submit(client, "/access/quotas", "/access/quotas/set", key="producer_byte_rate", **fields)
        assert refused.status_code == 400
    mixed = submit(client, "/access/quotas", "/access/quotas/set", user="a", ip="127.0.0.1", **rate)
    assert mixed.status_code in (400, 409)
    gone = submit(
        client,
        "/access/quotas",
        "/access/quotas/remove",
        **{"user": "alice", "client-id": "etl", "key": "producer_byte_rate"},
    )
    assert "user alice, client id etl has no producer_byte_rate of its own now." in words(gone)
    assert len(client.get("/api/access/quotas").json()) == 1


def test_a_token_is_created_renewed_and_expired(
    client: httpx.Client, owner: Admin, of_admin: RunningConsole
) -> None:
    made = submit(client, "/access/tokens", "/access/tokens/create", renewers="User:bob", hours="2")
    (token,) = owner.describe_delegation_tokens()
    assert token.password in made.text
    assert token.token_id in made.text
    listed = client.get("/access/tokens")
    assert token.token_id in listed.text
    assert token.password not in listed.text
    (row,) = client.get("/api/access/tokens").json()
    assert row["renewers"] == ["User:bob"]
    assert row["max_ms"] - row["issued_ms"] == 2 * 3_600_000
    assert token.password not in json.dumps(row)
    assert token.password not in "\n".join(of_admin.process.output)
    renewed = submit(client, "/access/tokens", "/access/tokens/renew", token_id=token.token_id)
    assert f"Renewed token {token.token_id}." in words(renewed)
    expired = submit(client, "/access/tokens", "/access/tokens/expire", token_id=token.token_id)
    assert f"Token {token.token_id} has expired." in words(expired)
    assert owner.describe_delegation_tokens() == []
    for fields in ({"owner": "alice"}, {"hours": "-1"}, {"hours": "9" * 12}, {"renewers": "User:x," * 30}):
        assert submit(client, "/access/tokens", "/access/tokens/create", **fields).status_code == 400


def test_brokers_without_security_say_so(console: RunningConsole) -> None:
    with console.client() as client:
        assert "The brokers have no authorizer" in words(client.get("/access"))
        assert "a token needs a login by SASL or TLS" in words(client.get("/access/tokens"))


def test_every_change_has_its_audit_line(client: httpx.Client, of_admin: RunningConsole) -> None:
    submit(client, "/access", "/access/add", **{**RULE, "resource": "audited"})

    def noted() -> set[tuple[str, str]]:
        lines = [line for line in list(of_admin.process.output) if '"CONSOLE"' in line]
        found = [json.loads(line[line.index("{") :]) for line in lines]
        return {(each["operation"], each["resource"]) for each in found}

    expected = ("add access rule", "ALLOW READ to User:alice from * on TOPIC:LITERAL:audited")
    eventually(lambda: expected in noted(), "the change is an audit line")


@pytest.mark.parametrize("path", ["/topics/pictured/partitions/0/live", "/overview/live"])
def test_streams_end_with_the_session(client: httpx.Client, owner: Admin, path: str) -> None:
    """Also where the console's own login, which other visitors share, goes on."""
    if "pictured" not in {each.name for each in owner.list_topics()}:
        owner.create_topics([NewTopic("pictured", 1)])
    token = form_token(client.get("/new-topic"))
    with client.stream("GET", path) as live:
        told = (line for line in live.iter_lines() if line.startswith("data:"))
        assert next(told)
        client.post("/sign-out", data={"form_token": token})
        assert len(list(islice(told, 4))) < 4
    assert client.get("/topics").headers["location"] == "/sign-in"
