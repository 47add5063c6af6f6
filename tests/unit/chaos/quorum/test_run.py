"""One seed of the quorum: what it tells, and what it keeps to itself."""

from __future__ import annotations

import pytest
import structlog

from kraft.chaos.quorum.quorum import Quorum
from kraft.chaos.quorum.run import run
from kraft.chaos.quorum.settings import drawn, scenario_of


def test_what_voters_log_stays_out_of_the_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def play_and_log(quorum: Quorum) -> None:
        structlog.get_logger("partitions.log.opening.open_log").warning("missing indexes were not made")

    monkeypatch.setattr(Quorum, "play", play_and_log)
    assert run(scenario_of(1)).violations == []
    assert capfd.readouterr() == ("", "")


def test_two_pauses_last_as_long_as_the_longer_one() -> None:
    """Seed 198: what waited for the end of the first came after what the shorter second let through."""
    quorum = Quorum(1, drawn(1))
    voter = quorum.voters[1]
    voter.pause(1.5)
    voter.pause(0.1)
    assert voter.paused_until_s == quorum.now_s + 1.5
