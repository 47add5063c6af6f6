"""Quorums told as stories: each file in `stories` is a script, and what its voters did.

A paragraph of commands, a line `----`, what happened, an empty line. Set UPDATE_STORIES=1 to write
what happens now, and read the difference like code. Commands (voters by number):
start N [snapshot-every M] · run SECONDS · propose TEXT · hand-over · cut A · heal A ·
kill A · power-loss A · restart A
"""

import os
from pathlib import Path

import pytest

from kraft.chaos.quorum.quorum import Quorum
from kraft.chaos.quorum.settings import Settings
from kraft.chaos.world.network import Latency
from quorum.raft.events import Committed, LeaderChanged, ProposalOutcome, RaftEffect, TransferLeadership

SEED = 16
"""With it voter 1 is the first leader of three, as the scripts expect."""
OPENED_S = 0.001
"""Until a voter that was started has opened its folder."""
LATENCY = Latency(0.001, 0.03)
STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


class Story(Quorum):
    """A cluster without faults of its own, which writes down what its voters do."""

    def __init__(self, voters: int, snapshot_every_entries: int) -> None:
        super().__init__(
            SEED, Settings(voters=voters, snapshot_every_entries=snapshot_every_entries, latency=LATENCY)
        )
        self.lines: list[str] = []
        self._down: set[int] = set()

    def note(self, node_id: int, effect: RaftEffect) -> None:
        if isinstance(effect, LeaderChanged) and effect.leader_id == node_id:
            self.lines.append(f"{node_id} leads epoch {effect.epoch}{', active' if effect.active else ''}")
        elif isinstance(effect, LeaderChanged) and effect.leader_id is not None:
            self.lines.append(f"{node_id} follows {effect.leader_id} in epoch {effect.epoch}")
        elif isinstance(effect, LeaderChanged):
            self.lines.append(f"{node_id} has no leader in epoch {effect.epoch}")
        elif isinstance(effect, Committed):
            texts = [
                f"{entry.offset}={entry.records[0].decode() if entry.records else 'barrier'}"
                for entry in effect.entries
            ]
            self.lines.append(
                f"{node_id} commits {' '.join(texts) or f'a snapshot through {effect.image[0]}'}"
            )
        elif isinstance(effect, ProposalOutcome):
            text = self.voters[node_id].pending[effect.request_id].decode()
            self.lines.append(f"{node_id} answers {text}: {effect.error or f'offset {effect.offset}'}")

    def link(self, node_id: int, up: bool) -> None:
        for other in self.ids:
            if other != node_id:
                (self.sessions.connect if up else self.sessions.disconnect)(node_id, other)

    def execute(self, command: str, argument: str) -> None:
        if command == "run":
            self.scheduler.run(self.now_s + float(argument))
        elif command == "propose":
            leader = next(voter for voter in self.voters.values() if voter.active)
            self.propose(leader, argument.encode())
        elif command == "hand-over":
            next(voter for voter in self.voters.values() if voter.active).post(TransferLeadership())
        elif command in ("cut", "heal"):
            self.link(int(argument), command == "heal")
        elif command in ("kill", "power-loss"):
            host = self.hosts[int(argument)]
            (host.kill if command == "kill" else host.power_loss)()
        elif command == "restart":
            self.start_node(int(argument))
            self.scheduler.run(self.now_s + OPENED_S)
            self.link(int(argument), True)
        else:
            raise ValueError(f"no such command: {command}")


def play(text: str) -> str:
    """The script with what happens now."""
    story = None
    told = []
    for paragraph in text.strip().split("\n\n"):
        script = paragraph.split("\n----")[0]
        told.append(script)
        for line in script.splitlines():
            command, _, argument = line.partition(" ")
            if command == "#":
                continue
            if command == "start":
                words = argument.split()
                story = Story(int(words[0]), int(words[2]) if len(words) > 1 else 10**6)
                story.start()
            else:
                story.execute(command, argument)
        if story is not None and story.lines:
            told[-1] += "\n----\n" + "\n".join(story.lines)
            story.lines.clear()
    return "\n\n".join(told) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path):
    told = play(path.read_text())
    if os.environ.get("UPDATE_STORIES"):
        path.write_text(told)
    assert told == path.read_text()
