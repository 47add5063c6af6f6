"""How programs of the user's own end: told to, or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.chaos.experiments.document import Workload, load
from kraft.chaos.real.brokers import Brokers
from kraft.chaos.real.workload.commands import OUTPUT_FILE, Command
from kraft.chaos.real.workload.recorder import Recorder
from tests.support.node_processes import until
from tests.unit.chaos.experiments.planted import TEXT


def spec(command: str) -> Workload:
    text = TEXT.replace("[sim, real]", "[real]").replace(
        "{kind: consumer, topic: orders}", f'{{kind: command, command: "{command}"}}'
    )
    return load(text).workload[1]


WAITS = "echo up; while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    ("command", "is_told", "code"),
    [
        (f"trap 'exit 143' TERM; {WAITS}", True, 0),
        (WAITS, True, 0),
        (f"trap 'exit 3' TERM; {WAITS}", True, 3),
        ("echo up; exit 143", False, 143),
        ("echo up; kill -TERM $$", False, -15),
        ("echo up", False, 0),
    ],
)
def test_an_end_by_the_signal_is_a_success_only_for_one_that_was_told_to_end(
    tmp_path: Path, command: str, is_told: bool, code: int
) -> None:
    recorder = Recorder({"orders": b"o" * 16}, {"orders": 1})
    program = Command(spec(command), 0, tmp_path, tmp_path)
    program.start(Brokers("127.0.0.1:1"), recorder.partitions, 1.0)
    output = tmp_path / "command-0" / OUTPUT_FILE
    until(lambda: output.read_text() == "up\n", "the program runs")
    if is_told:
        program.stop()
    assert program.end(recorder).exit_code == code
