"""A network namespace for each node, and one more with a bridge between them: the switch, at which packets are lost.

Each node has an interface and an address of its own; clients are on this host, which has two addresses: one for
clients, one for those who watch the cluster, whom no fault hurts. Every packet between nodes, and between clients and
nodes, passes the switch, where nftables drop some and count the rest. Unlike a relay the switch acknowledges nothing:
what a cut drops is sent again by the sender's kernel, which finds out by itself, and a cut in one direction is one.

It needs root, the commands `ip` and `nft`, and a kernel with network namespaces, bridges, veth pairs and nf_tables.
Each run has a name, noted in its folder before anything is made: `delete` removes all that has it. Nothing of this
host's own network is changed: only a veth pair and its addresses are added, and go with the run.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from kraft.chaos.real.relay import CLIENTS, Link
from kraft.user_error import UserError

NOTED_SUFFIX: Final = ".netns"
"""Of the file in a run's folder whose name is that of its namespaces."""
PREFIX: Final = "kraft-chaos-"
SUBNETS: Final = "198.18"
"""Of addresses that nobody has, since they are for benchmarks of networks (RFC 2544): a run takes a third number."""
CLIENTS_PLACE, WATCHER_PLACE, NODES_PLACE = 1, 2, 10
"""The last number of the addresses of this host's two, and of node 0, which does not exist."""
FAMILY: Final = "bridge"
COUNTING: Final = "passed"
THOUSAND: Final = 1000
COMMAND_S: Final = 20.0


def run(command: Sequence[str], text: str = "") -> str:
    """What the command prints. Raises UserError, with what it complained of."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=COMMAND_S
        )
    except FileNotFoundError as error:
        raise UserError(f"there is no command {command[0]}; install iproute2 and nftables") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"`{' '.join(command)}` does not end") from error
    if done.returncode:
        raise UserError(f"`{' '.join(command)}` refuses: {' '.join(done.stderr.split())[:300]}")
    return done.stdout


def refusal() -> str:
    """Why this host has none, as far as that is seen without making any; "" if nothing is missing."""
    if os.geteuid() != 0:
        return "`network: namespaces` needs root, since each node gets a network namespace of its own"
    for command, package in (("ip", "iproute2"), ("nft", "nftables")):
        if shutil.which(command) is None:
            return f"`network: namespaces` needs the command {command}; install {package}"
    return ""


def delete(name: str) -> None:
    """Removes all that a run of this name has made; none is fine. Its processes must be gone."""
    subprocess.run(["ip", "link", "del", _host_end(name)], capture_output=True, check=False)
    listed = subprocess.run(["ip", "-j", "netns", "list"], capture_output=True, check=False).stdout
    for one in json.loads(listed or b"[]"):
        if one["name"].startswith(f"{name}-"):
            subprocess.run(["ip", "netns", "del", one["name"]], capture_output=True, check=False)


def delete_noted(helpers: Path) -> None:
    """What a run has left, by its notes."""
    for noted in helpers.glob(f"*{NOTED_SUFFIX}"):
        delete(noted.name.removesuffix(NOTED_SUFFIX))


def _host_end(name: str) -> str:
    """The interface on this host; the kernel takes 15 characters."""
    return f"kc-{name.removeprefix(PREFIX)}"


class Namespaces:
    """The network of one run. Close it, whatever happens."""

    def __init__(self, node_ids: Iterable[int], helpers: Path) -> None:
        """Makes it. Raises UserError where this host cannot."""
        self.node_ids = tuple(node_ids)
        self.name = f"{PREFIX}{secrets.token_hex(4)}"
        self._noted = helpers / f"{self.name}{NOTED_SUFFIX}"
        self._noted.touch()
        self._subnet = _free_subnet()
        try:
            self._make()
            self._nft(self._counting())
        except UserError as error:
            self.close()
            raise UserError(
                f"this host has no network namespaces as `network: namespaces` needs: {error}"
            ) from error

    def close(self) -> None:
        """All is gone. May be called twice."""
        delete(self.name)
        self._noted.unlink(missing_ok=True)

    # -- who is where

    def address(self, end: int) -> str:
        """Of a node, or of the clients."""
        return f"{self._subnet}.{CLIENTS_PLACE if end == CLIENTS else NODES_PLACE + end}"

    @property
    def watcher(self) -> str:
        """The address from which the cluster is watched."""
        return f"{self._subnet}.{WATCHER_PLACE}"

    def entering(self, node_id: int) -> tuple[str, ...]:
        """What is put before a command to run it where a node is; the process stays one."""
        return ("ip", "netns", "exec", f"{self.name}-{node_id}")

    def _make(self) -> None:
        switch, host = f"{self.name}-switch", _host_end(self.name)
        run(["ip", "netns", "add", switch])
        self._ip(switch, ["link add bridge type bridge", "link set bridge up"])
        for node in self.node_ids:
            own = f"{self.name}-{node}"
            run(["ip", "netns", "add", own])
            self._ip(
                switch,
                [
                    f"link add node{node} type veth peer name eth0 netns {own}",
                    f"link set node{node} master bridge up",
                ],
            )
            self._ip(
                own, [f"addr add {self.address(node)}/24 dev eth0", "link set eth0 up", "link set lo up"]
            )
        run(["ip", "link", "add", host, "type", "veth", "peer", "name", "host", "netns", switch])
        self._ip(switch, ["link set host master bridge up"])
        for address in (self.address(CLIENTS), self.watcher):  # the first is what clients dial from
            run(["ip", "addr", "add", f"{address}/24", "dev", host])
        run(["ip", "link", "set", host, "up"])

    def _ip(self, namespace: str, lines: list[str]) -> None:
        run(["ip", "-n", namespace, "-batch", "-"], "".join(f"{line}\n" for line in lines))

    # -- packets

    def _nft(self, text: str, *arguments: str) -> str:
        enter = ["ip", "netns", "exec", f"{self.name}-switch", "nft"]
        return run([*enter, *(arguments or ("-f", "-"))], text)

    def _counting(self) -> str:
        """A table behind those of faults: what reaches it passes."""
        ends = (CLIENTS, *self.node_ids)
        links = [Link(one, other) for one in ends for other in ends if one != other]
        counters = "".join(f"  counter {_counter(link)} {{ }}\n" for link in links)
        rules = "".join(f"    {self._match(link)} counter name {_counter(link)}\n" for link in links)
        return _table(COUNTING, rules, priority=10, more=counters)

    def _match(self, link: Link) -> str:
        return f"ip saddr {self.address(link.source)} ip daddr {self.address(link.target)}"

    def drop(self, table: str, links: Iterable[Link], lost: int = THOUSAND) -> None:
        """Of a thousand packets on each of these links so many are dropped from when this returns, until `pass_on`.
        Tables of several faults do not know of each other: a packet passes that all let pass."""
        chance = "" if lost >= THOUSAND else f"numgen random mod {THOUSAND} < {lost} "
        rules = "".join(
            f'    {self._match(link)} {chance}counter drop comment "{_counter(link)}"\n' for link in links
        )
        self._nft(_table(table, rules, priority=0))

    def pass_on(self, table: str) -> None:
        """None of that name is fine."""
        if table in self.tables():
            self._nft("", "delete", "table", FAMILY, table)

    def tables(self) -> set[str]:
        """Those of faults that drop packets now."""
        said = json.loads(self._nft("", "-j", "list", "tables"))
        return {one["table"]["name"] for one in said["nftables"] if "table" in one} - {COUNTING}

    def dropped(self, table: str) -> dict[Link, int]:
        """By link, the packets that a table has dropped."""
        said = json.loads(self._nft("", "-j", "list", "table", FAMILY, table))
        rules = [one["rule"] for one in said["nftables"] if "rule" in one]
        return {
            _link(rule["comment"]): sum(
                part["counter"]["packets"] for part in rule["expr"] if "counter" in part
            )
            for rule in rules
        }

    def passed(self) -> dict[Link, int]:
        """By link, the packets that have passed the switch since the run began."""
        said = json.loads(self._nft("", "-j", "list", "counters", "table", FAMILY, COUNTING))
        counters = [one["counter"] for one in said["nftables"] if "counter" in one]
        return {_link(one["name"]): one["packets"] for one in counters}


def _table(name: str, rules: str, *, priority: int, more: str = "") -> str:
    chain = f"  chain at_the_switch {{\n    type filter hook forward priority {priority}; policy accept;\n{rules}  }}\n"
    return f"table {FAMILY} {name} {{\n{more}{chain}}}\n"


def _counter(link: Link) -> str:
    return f"from_{link.source}_to_{link.target}"


def _link(counter: str) -> Link:
    _, source, _, target = counter.split("_")
    return Link(int(source), int(target))


def _free_subnet() -> str:
    """One that this host has no route to. Raises UserError."""
    taken = {str(route.get("dst", "")) for route in json.loads(run(["ip", "-j", "-4", "route"]) or "[]")}
    free = [number for number in range(256) if f"{SUBNETS}.{number}.0/24" not in taken]
    if not free:
        raise UserError(
            f"all subnets of {SUBNETS}.0.0/16 are in use on this host; end runs that nobody needs"
        )
    return f"{SUBNETS}.{secrets.choice(free)}"
