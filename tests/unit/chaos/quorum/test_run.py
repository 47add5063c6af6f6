"""One seed of the quorum: what it tells, and what it keeps to itself."""

from __future__ import annotations

import pytest
import structlog

from kraft.chaos.quorum.quorum import Quorum
from kraft.chaos.quorum.run import run
from kraft.chaos.quorum.settings import scenario_of


def test_what_voters_log_stays_out_of_the_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def play_and_log(quorum: Quorum) -> None:
        structlog.get_logger("partitions.log.opening.open_log").warning("missing indexes were not made")

    monkeypatch.setattr(Quorum, "play", play_and_log)
    assert run(scenario_of(1)).violations == []
    assert capfd.readouterr() == ("", "")
