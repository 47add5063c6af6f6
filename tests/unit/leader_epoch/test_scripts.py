"""Plays the stories under scripts/: two replicas' epoch histories, and where they part.

Commands: `NAME epoch E`: the replica becomes leader in E. `NAME append N`: it appends N records in the
epoch in force (as leader, or as follower of the replica that is followed). `NAME follow LEADER`:
truncates by the leader's answers until the histories agree, then copies the rest. `NAME ask E`: the
answer to a request for the end of E. `NAME truncate O`, `NAME start O`: the log's end or start moves.
`NAME show`: entries and end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from leader_epoch.epoch_cache import EpochCache
from leader_epoch.truncation import truncation_offset
from tests.support.golden import check_script, scripts_beside


@dataclass
class Replica:
    cache: EpochCache = field(default_factory=EpochCache)
    records: list[int] = field(default_factory=list)
    """The epoch of every record; the index is its offset."""
    start: int = 0

    @property
    def end(self) -> int:
        return len(self.records)

    def truncate(self, offset: int) -> None:
        del self.records[offset:]
        self.cache.truncate_from_end(offset)


class Story:
    def __init__(self) -> None:
        self.replicas: dict[str, Replica] = {}

    def play(self, line: str) -> list[str]:
        name, command, *words = line.split()
        replica = self.replicas.setdefault(name, Replica())
        return getattr(self, f"do_{command}")(replica, *words) or []

    def do_epoch(self, replica: Replica, epoch: str) -> None:
        replica.cache.assign(int(epoch), replica.end)

    def do_append(self, replica: Replica, count: str) -> list[str]:
        epoch = replica.cache.latest_epoch
        assert epoch is not None
        replica.records += [epoch] * int(count)
        return [f"end {replica.end}"]

    def do_truncate(self, replica: Replica, offset: str) -> list[str]:
        replica.truncate(int(offset))
        return self.do_show(replica)

    def do_start(self, replica: Replica, offset: str) -> list[str]:
        replica.start = int(offset)
        replica.cache.truncate_from_start(replica.start)
        return self.do_show(replica)

    def do_ask(self, replica: Replica, epoch: str) -> list[str]:
        found, end = replica.cache.end_offset_for(int(epoch), replica.end)
        return [f"epoch {found} ends at {end}"]

    def do_follow(self, replica: Replica, leader_name: str) -> list[str]:
        leader = self.replicas[leader_name]
        lines = []
        for _ in range(10):
            asked = replica.cache.latest_epoch
            if asked is None:
                break
            answer = leader.cache.end_offset_for(asked, leader.end)
            if answer[0] == asked and answer[1] >= replica.end:
                break
            step = truncation_offset(replica.cache, answer, log_end_offset=replica.end, high_watermark=0)
            lines.append(
                f"epoch {asked}: leader has epoch {answer[0]} to {answer[1]}; cut to {step.offset}"
                + ("" if step.completed else ", ask again")
            )
            replica.truncate(step.offset)
        copied = leader.records[replica.end :]
        for epoch in copied:
            if epoch != replica.cache.latest_epoch:
                replica.cache.assign(epoch, replica.end)
            replica.records.append(epoch)
        assert replica.records == leader.records, "the logs differ"
        return [*lines, f"copied {len(copied)}"]

    def do_show(self, replica: Replica) -> list[str]:
        entries = ", ".join(f"{epoch}@{start}" for epoch, start in replica.cache.entries) or "none"
        return [f"entries {entries}; log {replica.start} to {replica.end}"]


@pytest.mark.parametrize("path", scripts_beside(__file__), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    check_script(path, Story().play)
