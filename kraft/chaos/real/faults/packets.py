"""Packets that are truly lost, which no relay can play: the kernel drops them (nftables), and TCP finds out by itself.
It needs root, the `nft` command, and a kernel with nf_tables and its random numbers.

Where nodes are behind relays (`PacketLoss`), a share of the packets between relays and nodes is dropped, both ways: of
connections to the node, and of those that it made, which relays carry on from an address of its own. Each run has a
table of its own, noted in its folder. Where they are in network namespaces (`SwitchFault`), the switch between them
drops a share of a node's packets, or all on some links, in one direction if the file says so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

from kraft.chaos.experiments.document import DURATION_MAX_S
from kraft.chaos.real.faults.fault import Aim, Fault, Proof, all_of, until
from kraft.chaos.real.faults.networks import links_of, told
from kraft.chaos.real.namespaces import Namespaces
from kraft.chaos.real.relay import CLIENTS, RELAY_NETWORK, Link, relay_host
from kraft.user_error import UserError

FAMILY: Final = "ip"
TABLE_PREFIX: Final = "kraft_chaos_"
NOTED_SUFFIX: Final = ".nft"
"""Of the files in a run's folder that tell which tables it has made: their names are the tables'."""
CLIENTS_AND_NODES: Final = f"{RELAY_NETWORK}1-{RELAY_NETWORK}200"
STEPS: Final = 1000
"""A share is so many of a thousand."""
LOSES_S: Final = 3.0
PASSES_S: Final = 20.0


class PacketLoss:
    """The share `lost` of a node's packets is dropped."""

    def __init__(self, aim: Aim) -> None:
        self.aim = aim
        self._table = f"{TABLE_PREFIX}{os.getpid()}_{id(self):x}"

    def begin(self) -> None:
        (self.aim.helpers / f"{self._table}{NOTED_SUFFIX}").touch()
        self._load(1.0)

    def grow(self, share: float) -> None:
        """The rules are replaced at once."""
        delete_table(self._table)
        self._load(share)

    def _load(self, share: float) -> None:
        lost = round(STEPS * self.aim.number("lost") * share)
        relays = self.aim.cluster.relays
        ports = {node: relays.ports[node] for node in self.aim.nodes}
        nft(["-f", "-"], ruleset(self._table, ports, relays.node_ports, lost))

    def proof(self) -> Proof:
        """By the kernel's own count."""
        lost = until(lambda: self._dropped() > 0, self.aim.stopped, LOSES_S)
        return Proof(lost, f"the kernel dropped {self._dropped()} packets of node {self._told()}")

    def _told(self) -> str:
        return ", ".join(map(str, self.aim.nodes))

    def _dropped(self) -> int:
        said = json.loads(nft(["-j", "list", "table", FAMILY, self._table]))
        rules = [one["rule"] for one in said["nftables"] if "rule" in one]
        return sum(part["counter"]["packets"] for rule in rules for part in rule["expr"] if "counter" in part)

    def end(self) -> None:
        delete_table(self._table)
        (self.aim.helpers / f"{self._table}{NOTED_SUFFIX}").unlink(missing_ok=True)

    def heal_proof(self) -> Proof:
        cluster, told = self.aim.cluster, nft(["list", "tables"])
        gone = Proof(self._table not in told, f"the table {self._table} is gone")
        answers = until(lambda: all(map(cluster.answers_clients, self.aim.nodes)), self.aim.stopped, PASSES_S)
        return all_of([gone, Proof(answers, f"node {self._told()} answers clients")])


class SwitchFault:
    """Of the packets on some links, all or a share are dropped. At the switch each fault has a table of its own."""

    def __init__(self, aim: Aim, links: list[Link], lost: float = 1.0) -> None:
        self.aim = aim
        self._links = links
        self._lost = lost
        self._table = f"fault_{id(self):x}"
        self._passed_before: dict[Link, int] = {}

    @property
    def _switch(self) -> Namespaces:
        namespaces = self.aim.cluster.namespaces
        assert namespaces is not None, "faults at the switch are for clusters in namespaces"
        return namespaces

    def begin(self) -> None:
        self._switch.drop(self._table, self._links, round(STEPS * self._lost))
        self._passed_before = self._switch.passed()

    def grow(self, share: float) -> None:
        """None of them has a size that grows."""

    def proof(self) -> Proof:
        """By the kernel's own count: it dropped packets of each target, and of a link that is cut let none pass."""
        until(lambda: not self._unhurt(), self.aim.stopped, LOSES_S)
        if unhurt := self._unhurt():
            nodes = ", ".join(map(str, unhurt))
            return Proof(
                False, f"no packet of node {nodes} was dropped: nobody sent any on {told(self._links)}"
            )
        dropped, passed = sum(self._switch.dropped(self._table).values()), self._passed()
        text = f"on {told(self._links)} the kernel dropped {dropped} packets, and {passed} passed"
        return Proof(passed == 0 or self._lost < 1.0, text)

    def _passed(self) -> int:
        passed = self._switch.passed()
        return sum(passed[link] - self._passed_before[link] for link in self._links)

    def _unhurt(self) -> list[int]:
        """The targets of which the fault has dropped nothing yet."""
        dropped = self._switch.dropped(self._table)
        return [
            node for node in self.aim.nodes if not sum(dropped[link] for link in self._links if node in link)
        ]

    def end(self) -> None:
        self._switch.pass_on(self._table)

    def heal_proof(self) -> Proof:
        """That the table is gone and packets pass. A kernel whose packets were lost for long waits as long again
        before it sends anew; a question of our own has no such past."""
        gone = Proof(self._table not in self._switch.tables(), f"the table {self._table} is gone")
        until(
            lambda: not self._switch.tables(), self.aim.stopped, DURATION_MAX_S
        )  # others have their own ends
        self._passed_before, cluster = self._switch.passed(), self.aim.cluster
        for_clients = CLIENTS in {end for link in self._links for end in link}

        def passes() -> bool:
            if for_clients:
                return all(map(cluster.answers_clients, self.aim.nodes))
            return self._passed() > 0

        healed = until(passes, self.aim.stopped, PASSES_S)
        return all_of(
            [gone, Proof(healed, f"on {told(self._links)} {self._passed()} packets have passed since")]
        )


def packet_loss(aim: Aim) -> Fault:
    """The share `lost` of all that a node sends and gets."""
    if aim.cluster.namespaces is None:
        return PacketLoss(aim)
    return SwitchFault(aim, links_of(replace(aim, parameters={"from": "everybody"})), aim.number("lost"))


def cut(aim: Aim) -> Fault | None:
    """No packet between the targets and `from`, in `direction`, where nodes are in namespaces; else None."""
    return None if aim.cluster.namespaces is None else SwitchFault(aim, links_of(aim))


def ruleset(table: str, ports: dict[int, set[int]], all_ports: set[int], lost: int) -> str:
    """The table that drops `lost` of a thousand packets of some nodes, whose ports these are."""
    every = _set(all_ports)
    rules = []
    for node, own in ports.items():
        mine, host = _set(own), relay_host(node)
        rules += [
            f"ip saddr {CLIENTS_AND_NODES} tcp dport {mine}",
            f"ip daddr {CLIENTS_AND_NODES} tcp sport {mine}",
            f"ip saddr {host} tcp dport {every}",
            f"ip daddr {host} tcp sport {every}",
        ]
    drop = f"numgen random mod {STEPS} < {lost} counter drop"
    lines = "".join(f"    {rule} {drop}\n" for rule in rules)
    chain = f"  chain lose {{\n    type filter hook input priority 0; policy accept;\n{lines}  }}\n"
    return f"table {FAMILY} {table} {{\n{chain}}}\n"


def _set(ports: set[int]) -> str:
    return f"{{ {', '.join(map(str, sorted(ports)))} }}"


def refusal() -> str:
    """Why this host has no packet loss; "" if it has."""
    if os.geteuid() != 0:
        return "the fault packet-loss needs root, since the kernel drops the packets (nftables)"
    if shutil.which("nft") is None:
        return "the fault packet-loss needs the command nft; install nftables"
    try:
        nft(["--check", "-f", "-"], ruleset(f"{TABLE_PREFIX}check", {1: {9}}, {9}, 1))
    except UserError as error:
        return f"this host's kernel has no packet loss for the fault packet-loss: {error}"
    return ""


def nft(arguments: list[str], rules: str = "") -> str:
    """What the command prints. Raises UserError."""
    done = subprocess.run(["nft", *arguments], input=rules, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"nft refuses: {' '.join(done.stderr.split())[:300]}")
    return done.stdout


def delete_table(table: str) -> None:
    """None is fine."""
    subprocess.run(["nft", "delete", "table", FAMILY, table], capture_output=True, check=False)


def delete_noted(helpers: Path) -> None:
    """The tables that a run has left."""
    for noted in helpers.glob(f"*{NOTED_SUFFIX}"):
        delete_table(noted.name.removesuffix(NOTED_SUFFIX))
