"""A small network of this test's own: every host in a network namespace, all on one bridge.

Nothing of it is reachable from outside, and nothing outside from it. A link is cut in one direction by
telling a host a wrong hardware address of another: what it sends there goes nowhere, without a sign
to the sender, as on a broken network. The addresses are of a range reserved for documentation.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

NETWORK = "192.0.2"
NOWHERE = "02:00:00:00:00:ff"
SWITCH = "switch"


def why_not() -> str | None:
    """Why there can be no namespaces here, or None."""
    if shutil.which("ip") is None:
        return "the command 'ip' is missing"
    if os.geteuid() != 0:
        return "network namespaces need root"
    probe = f"bbp{os.getpid() % 100_000}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespaces: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=False)
    return None


class Lab:
    """Hosts by name; `prefix` tells this lab's namespaces from others'."""

    def __init__(self, prefix: str, hosts: Sequence[str]) -> None:
        self.prefix = prefix
        self.hosts = list(hosts)
        self._cuts: set[tuple[str, str]] = set()

    def address(self, host: str) -> str:
        return f"{NETWORK}.{self.hosts.index(host) + 1}"

    def namespace(self, host: str) -> str:
        return f"{self.prefix}-{host}"

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """`command`, to be run on a host."""
        return ["ip", "netns", "exec", self.namespace(host), *command]

    def build(self) -> None:
        switch = self.namespace(SWITCH)
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for host in self.hosts:
            namespace = self.namespace(host)
            _ip("netns", "add", namespace)
            port = f"p-{host}"
            _ip(
                "link",
                "add",
                port,
                "netns",
                switch,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                namespace,
            )
            _ip("-n", switch, "link", "set", port, "master", "br0", "up")
            _ip("-n", namespace, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            _ip("-n", namespace, "link", "set", "lo", "up")

    def destroy(self) -> None:
        for host in (*self.hosts, SWITCH):
            subprocess.run(["ip", "netns", "del", self.namespace(host)], capture_output=True, check=False)

    def cut(self, sender: str, receiver: str) -> None:
        """Nothing that `sender` sends arrives at `receiver` any more."""
        namespace, address = self.namespace(sender), self.address(receiver)
        _ip(
            "-n", namespace, "neigh", "replace", address, "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent"
        )
        self._cuts.add((sender, receiver))

    def cut_both(self, one: str, other: str) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def heal(self) -> None:
        for sender, receiver in self._cuts:
            namespace, address = self.namespace(sender), self.address(receiver)
            _ip("-n", namespace, "neigh", "del", address, "dev", "eth0")
        self._cuts.clear()


@contextmanager
def lab(hosts: Sequence[str]) -> Iterator[Lab]:
    """A network of `hosts` that is gone on exit."""
    built = Lab(f"bb{os.getpid() % 100_000}", hosts)
    try:
        built.build()
        yield built
    finally:
        built.destroy()


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
