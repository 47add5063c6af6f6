"""Faults of the network, as relays can play them: nothing passes, late, slowly, or connections break.

Whatever a relay does not pass on it has acknowledged already, so the sender's kernel retransmits nothing and finds out
nothing: a `cut-off` in one direction leaves the other one to carry answers to requests that came before, and no TCP
connection dies of it by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraft.chaos.experiments.document import DURATION_MAX_S
from kraft.chaos.real.faults.fault import Aim, Proof, until
from kraft.chaos.real.relay import CLIENTS, Condition, Link, Passage, Traffic

PASSES_S: Final = 20.0
"""So long after the end something may need to pass: clients and nodes back off."""
HURT_S: Final = 3.0


def links_of(aim: Aim) -> list[Link]:
    """The links between the targets and `from` (nodes, clients or everybody) in `direction`, as the targets see it:
    both, in, out. Those between two targets are among them where `split` is "each"."""
    whom, direction = aim.word("from", "nodes"), aim.word("direction", "both")
    far: list[int] = [] if whom == "clients" else aim.cluster.node_ids
    far = far if whom == "nodes" else [*far, CLIENTS]
    near = () if aim.word("split", "group") == "each" else aim.nodes
    pairs = [(node, other) for node in aim.nodes for other in far if other != node and other not in near]
    links = [Link(other, node) for node, other in pairs] if direction != "out" else []
    links += [Link(node, other) for node, other in pairs] if direction != "in" else []
    return list(dict.fromkeys(links))


def told(links: Iterable[Link]) -> str:
    """Links in words."""

    def name(end: int) -> str:
        return "clients" if end == CLIENTS else str(end)

    return ", ".join(f"{name(link.source)} → {name(link.target)}" for link in links)


class Network:
    """Links are in a condition from the beginning to the end. One that does not last (a reset) is over at once."""

    def __init__(self, aim: Aim, condition: Condition) -> None:
        self.aim = aim
        self._condition = condition
        self._links = links_of(aim)
        self._before = Traffic()

    def begin(self) -> None:
        self._before = self.aim.cluster.relays.impose(self._condition, self._links, self)

    def grow(self, share: float) -> None:
        full = self._condition
        grown = Condition(
            full.passage, full.latency_s * share, full.jitter_s * share, full.bytes_per_s / share
        )
        self.aim.cluster.relays.impose(grown, self._links, self)

    def proof(self) -> Proof:
        """That the relays held something up of each target, and let nothing pass where nothing may."""
        relays, passage = self.aim.cluster.relays, self._condition.passage
        hurt = until(lambda: not self._unhurt(), self.aim.stopped, HURT_S)
        if unhurt := self._unhurt():
            nodes = ", ".join(map(str, unhurt))
            return Proof(
                False, f"nothing of node {nodes} was held up: nobody sent anything on {told(self._links)}"
            )
        passed = relays.traffic(self._links).passed_bytes - self._before.passed_bytes
        held = relays.hurt_by(self, self._links)
        if passage in (Passage.STALLED, Passage.HALF_OPEN):
            text = (
                f"on {told(self._links)} {passed} bytes passed, and {held} times a relay let nothing through"
            )
            return Proof(hurt and passed == 0, text)
        if passage is Passage.RESET:
            return Proof(hurt, f"on {told(self._links)} {held} connections were reset")
        return Proof(hurt, f"on {told(self._links)} {held} times bytes were held up, {passed} bytes passed")

    def _unhurt(self) -> list[int]:
        """The targets on whose links the fault has met nothing yet."""
        relays = self.aim.cluster.relays
        return [
            node
            for node in self.aim.nodes
            if not relays.hurt_by(self, [link for link in self._links if node in link])
        ]

    def end(self) -> None:
        self.aim.cluster.relays.lift(self._links, self)

    def heal_proof(self) -> Proof:
        """That bytes pass again, of others or of a question of our own, as soon as no other fault shuts the links."""
        relays, cluster = self.aim.cluster.relays, self.aim.cluster
        until(lambda: not relays.are_shut(self._links), self.aim.stopped, DURATION_MAX_S)
        before = relays.traffic(self._links).passed_bytes

        def passes() -> bool:
            if CLIENTS in {end for link in self._links for end in link}:
                return all(cluster.answers_clients(node) for node in self.aim.nodes)
            return relays.traffic(self._links).passed_bytes > before

        healed = until(passes, self.aim.stopped, PASSES_S)
        passed = relays.traffic(self._links).passed_bytes - before
        return Proof(healed, f"on {told(self._links)} {passed} bytes have passed since")


def network_fault(name: str, aim: Aim) -> Network:
    """The fault of this name, of those of the network."""
    conditions = {
        "cut-off": Condition(Passage.STALLED),
        "stall": Condition(Passage.STALLED),
        "half-open": Condition(Passage.HALF_OPEN),
        "reset": Condition(Passage.RESET),
        "latency": Condition(latency_s=aim.number("delay"), jitter_s=aim.number("jitter")),
        "bandwidth": Condition(bytes_per_s=aim.number("rate")),
    }
    return Network(aim, conditions[name])
